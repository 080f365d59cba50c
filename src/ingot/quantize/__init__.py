"""Quantize a model: the same keys and tensors in another file, with other types.

In: an open GGUF file and a mix (`mixes.py`). Out: a `Quantization`, which knows every tensor's type
and size before anything is computed, and writes the file. Tensors are decoded and encoded some rows
at a time, in native code on all threads. This package does not know networks.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path

from ingot import _native
from ingot.arrays import Bytes, Floats
from ingot.errors import QuantError
from ingot.files import require_room
from ingot.gguf import GgmlType, GgufLoader, GgufWriter, LazyTensor
from ingot.gguf.copying import copy_keys, copy_tensor
from ingot.quant import decode, encode, require_encodable
from ingot.quantize.compensation import encode_compensated
from ingot.quantize.imatrix import ImportanceMatrix
from ingot.quantize.mixes import COPY, Mix, ModelShape, choose_types, fitting, is_quantizable

_PIECE = 1 << 24  # weights that are in memory at once
_VERSION = 2  # of the block formats
_FLOATS = (GgmlType.F32, GgmlType.F16, GgmlType.BF16)
_CHANGED_KEYS = ("general.file_type", "general.quantization_version")


@dataclass(frozen=True, slots=True)
class Override:
    """A type for the tensors whose name a pattern finds."""

    pattern: re.Pattern[str]
    type: GgmlType


def parse_override(text: str) -> Override:
    """`REGEX=TYPE`, for example `ffn_down=q6_k`."""
    pattern, sign, name = text.rpartition("=")
    if not sign or not pattern:
        raise QuantError(f"{text!r} is not REGEX=TYPE, for example ffn_down=q6_k")
    if name.upper() not in (known := _encodable()):
        raise QuantError(f"no tensor can be written as {name!r}; the types are {', '.join(known)}")
    try:
        return Override(re.compile(pattern, re.IGNORECASE), GgmlType[name.upper()])
    except re.error as error:
        raise QuantError(f"{pattern!r} is not a regular expression: {error}") from None


def _encodable() -> list[str]:
    return [kind.name for kind in GgmlType if _native.has_encoder(kind)]


@dataclass(frozen=True, slots=True)
class Quantization:
    """A model and the type that each of its tensors gets."""

    source: GgufLoader
    mix: Mix
    types: Mapping[str, GgmlType]
    imatrix: ImportanceMatrix | None = None
    root: Callable[[str], Floats | None] | None = None  # for a matrix (`compensation.py`)

    def size_of(self, name: str) -> int:
        """The bytes of a tensor in the new file."""
        kind = self.types[name]
        return prod(self.source.tensors[name].shape) // kind.block_size * kind.block_bytes

    @property
    def size(self) -> int:
        """The bytes of all tensors in the new file."""
        return sum(map(self.size_of, self.types))

    @property
    def weights(self) -> int:
        """The number of weights."""
        return sum(prod(tensor.shape) for tensor in self.source.tensors.values())

    def write(
        self,
        path: Path,
        progress: Callable[[int, int], None] | None = None,
        *,
        keep_split: bool = False,
        threads: int | None = None,
    ) -> list[Path]:
        """Write the file, or with `keep_split` as many files as the source has.

        They appear under their names when they are complete. `progress(done, total)` receives
        bytes. `threads` quantize; all by default.
        """
        writer = GgufWriter(path, alignment=self.source.alignment)
        copy_keys(self.source, writer, without=_CHANGED_KEYS)
        file_type = self.source.metadata.get("general.file_type") if self.mix is COPY else None
        writer.add(
            "general.file_type", file_type if isinstance(file_type, int) else self.mix.file_type
        )
        writer.add("general.quantization_version", _VERSION)
        if self.imatrix is not None:
            self.imatrix.add_keys(writer)
        before: Path | None = None
        for name, tensor in self.source.tensors.items():
            if keep_split and before is not None and tensor.path != before:
                writer.begin_part()
            before = tensor.path
            kind = self.types[name]
            if kind is tensor.type:
                copy_tensor(tensor, writer)
            else:
                pieces = partial(self._pieces, name, threads)
                writer.add_streamed_tensor(name, kind, tensor.shape, pieces)
        total, done = writer.data_bytes, 0
        require_room(path.parent.resolve(), total, path.name, "choose another disk")

        def report(count: int) -> None:
            nonlocal done
            done += count
            for file in self.source.files:  # what was read is not needed again
                file.release(file.size)
            if progress is not None:
                progress(done, total)

        return writer.write(report)

    def _pieces(self, name: str, threads: int | None) -> Iterator[Bytes]:
        tensor = self.source.tensors[name]
        known = self.imatrix.of(name, tensor.shape) if self.imatrix else None
        root = self.root(name) if self.root else None
        return encoded_pieces(tensor, self.types[name], known, root, threads)


def encoded_pieces(
    tensor: LazyTensor,
    kind: GgmlType,
    importance: Floats | None,
    root: Floats | None = None,
    threads: int | None = None,
) -> Iterator[Bytes]:
    """The blocks of a tensor, some rows at a time; `importance` is [matrices, columns].

    `root`: for rounding with compensation (`compensation.py`).
    """
    columns = tensor.shape[-1]
    rows, row_bytes = prod(tensor.shape[:-1]), tensor.nbytes // prod(tensor.shape[:-1])
    matrices = 1 if importance is None else len(importance)
    step = max(1, _PIECE // columns)
    for number in range(matrices):
        end = (number + 1) * rows // matrices
        counts = None if importance is None else importance[number]
        for first in range(number * rows // matrices, end, step):
            last = min(first + step, end)
            data = tensor.data[first * row_bytes : last * row_bytes]
            values = decode(data, tensor.type, (last - first, columns), threads)
            require_encodable(values, kind, tensor.name)
            if root is not None and kind.block_size > 1:
                yield encode_compensated(values, root, kind, threads).reshape(-1)
            else:
                yield encode(values, kind, threads, importance=counts).reshape(-1)


def plan(
    source: GgufLoader,
    mix: Mix,
    overrides: Sequence[Override] = (),
    *,
    imatrix: ImportanceMatrix | None = None,
    allow_requantize: bool = False,
    own_rules: bool = False,
) -> Quantization:
    """Choose a type for each tensor. The last override that finds a name wins.

    `own_rules`: see `ingot.models.has_own_mix_rules`.
    """
    shapes = {name: tensor.shape for name, tensor in source.tensors.items()}
    if not shapes:
        raise QuantError(f"{source.path} has no tensors")
    if imatrix is not None and not shapes.keys() & imatrix.means.keys():
        raise QuantError(f"{imatrix.path} knows no tensor of {source.path}")
    model = replace(model_shape(source), own_rules=own_rules)
    chosen = choose_types(mix, model, shapes, has_imatrix=imatrix is not None)
    for name, shape in shapes.items():
        for override in overrides:
            if is_quantizable(name, shape) and override.pattern.search(name):
                chosen[name] = fitting(override.type, shape[-1])
    types = {name: chosen.get(name, tensor.type) for name, tensor in source.tensors.items()}
    for name, kind in types.items():
        before = source.tensors[name].type
        if kind is not before and before not in _FLOATS and not allow_requantize:
            raise QuantError(
                f"{source.path} is already quantized ({name} is {before.name}), and quantizing "
                "again loses more; take the F16 or BF16 file, or allow it (--allow-requantize)"
            )
        if kind is not before and mix.tensor_needs_imatrix(name, kind):
            if imatrix is None:
                raise QuantError(
                    f"{mix.name} needs an importance matrix, because {name} becomes {kind.name}; "
                    "ingot imatrix makes one (--imatrix FILE)"
                )
            if name not in imatrix.means:
                raise QuantError(
                    f"{imatrix.path} knows nothing of {name}, which {kind.name} needs; make one "
                    "from this model (ingot imatrix), or give the tensor another type "
                    "(--tensor-type)"
                )
    return Quantization(source, mix, types, imatrix)


def model_shape(source: GgufLoader) -> ModelShape:
    """What the rules of mixes ask about a model."""
    metadata = source.metadata
    architecture = metadata.string("general.architecture", "")

    def number(key: str, default: int) -> int:
        value = metadata.get(f"{architecture}.{key}", default)
        return value if isinstance(value, int) and value > 0 else default

    heads = number("attention.head_count", 1)
    return ModelShape(
        layers=number("block_count", 1),
        experts=number("expert_count", 0),
        queries_per_key=heads // number("attention.head_count_kv", heads),
        tied="output.weight" not in source.tensors,
    )
