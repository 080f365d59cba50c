"""Which tensors a file gets from a checkpoint, and how each is read.

In: the stored form of an architecture (`Checkpoint`), its settings and the stored tensors. Out: a
`FileTensor` for each tensor of the file, which is read row by row. Names that have no place are a
`ConversionError`, because the model would be another one without them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

import numpy as np

from ingot.arrays import Bytes, Floats
from ingot.convert.derived import (
    MultipliedRows,
    ReorderedColumns,
    TernaryMatrix,
    TransposedBlocks,
    Zeros,
)
from ingot.convert.matrices import Matrix, PlainMatrix, RowNumbers
from ingot.convert.packed import Mxfp4Matrix
from ingot.convert.safetensors import StoredTensor
from ingot.errors import ConversionError
from ingot.gguf import GgmlType
from ingot.models.checkpoint import Checkpoint, Number, Place, Rows
from ingot.models.settings import Settings

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_LAYER = re.compile(r"(?P<stack>(?:\w+\.)?blk)\.(?P<layer>\d+)\.")
_ENDINGS = (".weight", ".bias")
# The language model inside a multimodal one, and what is beside it.
_LANGUAGE = ("model.language_model.", "language_model.model.", "language_model.")
_BESIDE = (
    "vision_tower.", "vision_model.", "visual.", "multi_modal_projector.", "audio_tower.",
    "model.vision_tower.", "model.visual.", "model.multi_modal_projector.", "model.audio_tower.",
    "model.embed_vision.", "model.embed_audio.",
)  # fmt: skip
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_COMPARED = 4096  # bytes in each of some places of two matrices
_MTP = "mtp."  # what is for multi-token prediction, if it is apart from the layers
_NEVER_NEEDED = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of a stored tensor, in the order of the file."""

    matrix: Matrix
    order: RowNumbers | None  # None: all, as they are
    shape: tuple[int, ...]  # with columns

    @property
    def rows(self) -> int:
        return prod(self.shape[:-1])

    def read(self, first: int, last: int) -> Floats:
        return self.matrix.read(self._numbers(first, last))

    def read_stored(self, first: int, last: int) -> Bytes:
        assert isinstance(self.matrix, PlainMatrix)
        rows = np.ascontiguousarray(self.matrix.stored_rows(self._numbers(first, last)))
        return rows.reshape(-1).view(np.uint8)

    def _numbers(self, first: int, last: int) -> RowNumbers:
        return np.arange(first, last) if self.order is None else self.order[first:last]


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor of the file, made of pieces of stored ones."""

    name: str
    shape: tuple[int, ...]
    pieces: tuple[_Piece, ...]
    change: Callable[[Floats], Floats] | None

    @property
    def rows(self) -> int:
        """Rows that `read` numbers through."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def columns(self) -> int:
        """Elements of such a row."""
        return self.pieces[0].shape[-1]

    @property
    def kept_type(self) -> GgmlType | None:
        """The type whose blocks the values already are, if there is one."""
        packed = all(isinstance(piece.matrix, Mxfp4Matrix) for piece in self.pieces)
        return GgmlType.MXFP4 if packed else None

    def is_stored_as(self, kind: GgmlType) -> bool:
        """Whether the rows in the checkpoint are already those of a tensor of this type."""
        return self.change is None and all(
            isinstance(piece.matrix, PlainMatrix) and piece.matrix.tensor.type == kind.name
            for piece in self.pieces
        )

    def stored_as(self, kind: GgmlType) -> StoredTensor | None:
        """The tensor of the checkpoint whose bytes are those of this tensor, if there is one."""
        matrix = self.pieces[0].matrix
        plain = len(self.pieces) == 1 and self.pieces[0].order is None and self.is_stored_as(kind)
        if not plain or not isinstance(matrix, PlainMatrix) or matrix.transposed:
            return None
        return matrix.tensor

    def release(self) -> None:
        """Give back the memory of what was read; it is read again if it is needed again."""
        for piece in self.pieces:
            piece.matrix.release()

    def read(self, first: int, last: int) -> Floats:
        """Rows `first` to `last`."""
        found = [piece.read(low, high) for piece, low, high in self._parts(first, last)]
        values = found[0] if len(found) == 1 else np.concatenate(found)
        return values if self.change is None else self.change(values)

    def read_stored(self, first: int, last: int) -> Bytes:
        """The bytes of rows `first` to `last`, if they are stored in the type of the file."""
        found = [piece.read_stored(low, high) for piece, low, high in self._parts(first, last)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _parts(self, first: int, last: int) -> Iterator[tuple[_Piece, int, int]]:
        """The pieces that hold these rows, and which rows of each."""
        start = 0
        for piece in self.pieces:
            low, high = max(first - start, 0), min(last - start, piece.rows)
            if low < high:
                yield piece, low, high
            start += piece.rows


@dataclass(frozen=True, slots=True)
class _Source:
    """A stored tensor and its place in a tensor of the file."""

    rank: int  # among the names that are joined
    number: int | None  # of an expert or a head
    name: str
    matrix: Matrix
    part: int  # of the names that `rows` states
    rows: Rows | None


def plan_tensors(
    checkpoint: Checkpoint, settings: Settings, stored: Mapping[str, Matrix | StoredTensor]
) -> dict[str, FileTensor]:
    """The tensors of the file, by name."""
    sources: dict[str, list[_Source]] = {}
    for full_name, place in _places(checkpoint, settings, stored):
        rows = place.at if isinstance(place.at, Rows) else None
        if isinstance(place.at, Number):
            continue
        for part, own in enumerate(rows.names if rows else (str(place.at),)):
            target = place.prefix + own + place.ending
            matrix = _matrix(stored[full_name], target, place.stem, checkpoint, settings)
            source = _Source(place.rank, place.number, full_name, matrix, part, rows)
            sources.setdefault(target, []).append(source)
    planned = {name: _joined(name, found, checkpoint, settings) for name, found in sources.items()}
    if checkpoint.drops_output(settings):
        embedding, output = planned.get(_EMBEDDING), planned.pop(_OUTPUT, None)
        stated = checkpoint.own_output is not None
        if embedding and output and not stated and _differ(embedding, output):
            planned[_OUTPUT] = output  # config.json calls them tied, and `transformers` looks, too
    return dict(sorted(planned.items(), key=lambda item: _natural(item[0])))


def _differ(one: FileTensor, other: FileTensor) -> bool:
    """Whether two matrices are stored with different values, of which some are read."""
    matrices = [piece.matrix for tensor in (one, other) for piece in tensor.pieces]
    stored = [matrix.tensor for matrix in matrices if isinstance(matrix, PlainMatrix)]
    if len(stored) != 2 or len(matrices) != 2:
        return False
    a, b = stored
    size = min(a.nbytes, b.nbytes)
    starts = [(size - _COMPARED) * part // 64 for part in range(65)] if size > _COMPARED else [0]
    differ = a.shape != b.shape or any(
        not np.array_equal(a.data[start : start + _COMPARED], b.data[start : start + _COMPARED])
        for start in starts
    )
    for tensor in stored:
        tensor.release()
    return differ


def plan_numbers(
    checkpoint: Checkpoint, settings: Settings, stored: Mapping[str, Matrix | StoredTensor]
) -> dict[str, list[float]]:
    """The keys of the file that are stored as tensors: a number of each layer."""
    found: dict[str, dict[str, float]] = {}
    for name, place in _places(checkpoint, settings, stored):
        if not isinstance(place.at, Number):
            continue
        tensor = stored[name]
        matrix = PlainMatrix(tensor) if isinstance(tensor, StoredTensor) else tensor
        if prod(matrix.shape) != 1:
            raise ConversionError(f"{name} has the shape {matrix.shape[:-1]}; it must be a number")
        found.setdefault(place.at.key, {})[place.prefix] = float(matrix.read(np.arange(1))[0, 0])
    return {
        key: [numbers[layer] for layer in sorted(numbers, key=_natural)]
        for key, numbers in found.items()
    }


def count_mtp_layers(tensors: Mapping[str, FileTensor]) -> int:
    """The layers of the file that are for multi-token prediction."""
    return len({name.partition(".nextn.")[0] for name in tensors if ".nextn." in name})


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a stored tensor goes."""

    prefix: str  # of the layer
    number: int | None  # of an expert or a head
    at: Place
    rank: int  # among the names that are joined
    ending: str
    stem: str  # its stored name in the layer


def _places(
    checkpoint: Checkpoint, settings: Settings, stored: Mapping[str, object]
) -> Iterator[tuple[str, _Place]]:
    """The stored tensors that a file needs."""
    for full_name in stored:
        name = _language_name(full_name, checkpoint, settings)
        if name is not None:
            yield full_name, _place(name, full_name, checkpoint)


def _language_name(name: str, checkpoint: Checkpoint, settings: Settings) -> str | None:
    """A name without the prefixes of some classes; None for what a file does not need."""
    if name.startswith(_BESIDE):
        return None
    if name.startswith(_MTP):
        return _mtp_name(name, checkpoint, settings)
    for prefix in _LANGUAGE:
        if name.startswith(prefix):
            rest = name.removeprefix(prefix)
            name = rest if rest.startswith(("lm_head.", "model.")) else f"model.{rest}"
            break
    for prefix in checkpoint.prefixes:
        name = name.removeprefix(prefix)
    return None if name.endswith((*checkpoint.ignored, *_NEVER_NEEDED)) else name


def _mtp_name(name: str, checkpoint: Checkpoint, settings: Settings) -> str | None:
    """The name of what is for multi-token prediction: layers that follow the others."""
    if checkpoint.mtp_layers is None:
        return None
    layer, inner = "0", name.removeprefix(_MTP)
    if name.startswith(f"{checkpoint.mtp_layers}."):
        layer, _, inner = name.removeprefix(f"{checkpoint.mtp_layers}.").partition(".")
        if not layer.isdecimal() or len(layer) > 6:
            raise _unknown(name)
    return f"{checkpoint.layers}.{settings.layers + int(layer)}.{inner}"


def _place(name: str, full_name: str, checkpoint: Checkpoint) -> _Place:
    for stack in checkpoint.stacks:
        if name.startswith(f"{stack.layers}."):
            layer, _, inner = name.removeprefix(f"{stack.layers}.").partition(".")
            if not layer.isdecimal() or len(layer) > 6:
                raise _unknown(full_name)
            found = _found(inner, stack.place)
            if found is None:
                raise _unknown(full_name)
            prefix = f"{stack.file_layers}.{int(layer)}."
            return replace(found, prefix=prefix, rank=stack.rank(found.stem))
    found = _found(name, checkpoint.outer_place)
    if found is None:
        raise _unknown(full_name)
    return found


def _found(name: str, find: Callable[[str], Place | None]) -> _Place | None:
    """The place of a name, with the numbers that it states or with one for all numbers."""
    numbers = _NUMBER.findall(name)
    number = int(numbers[0]) if len(numbers) == 1 and len(numbers[0]) <= 6 else None
    for pattern, own in ((name, None), (_NUMBER.sub("{}", name, count=1), number)):
        for ending in ("", *_ENDINGS):
            stem = pattern.removesuffix(ending)
            place = find(stem) if pattern.endswith(ending) else None
            if place is not None:
                return _Place("", own, place, 0, ending, stem)
    return None


def _unknown(name: str) -> ConversionError:
    return ConversionError(
        f"tensor {name} has no place in this architecture; the file would be another model "
        "without it"
    )


def _matrix(
    tensor: Matrix | StoredTensor,
    target: str,
    inner: str,
    checkpoint: Checkpoint,
    settings: Settings,
) -> Matrix:
    if not isinstance(tensor, StoredTensor):
        return tensor
    vectors = target.endswith(".bias")
    transposed = inner in checkpoint.transposed and not vectors and len(tensor.shape) > 1
    if inner in checkpoint.inputs and len(tensor.shape) > 1:
        transposed = tensor.shape[-1] != checkpoint.inputs[inner](settings)
    return PlainMatrix(tensor, vectors=vectors, transposed=transposed)


def _joined(
    name: str, sources: list[_Source], checkpoint: Checkpoint, settings: Settings
) -> FileTensor:
    sources = sorted(sources, key=lambda source: (source.rank, source.number or 0))
    pieces = tuple(_piece(source, name, checkpoint, settings) for source in sources)
    shapes = {piece.shape for piece in pieces}
    if any(0 in shape for shape in shapes):
        raise ConversionError(f"{sources[0].name} is empty")
    if sources[0].number is not None:
        if [source.number for source in sources] != list(range(len(sources))) or len(shapes) > 1:
            raise ConversionError(
                f"{name}: the checkpoint has {len(sources)} parts like {sources[0].name}, which "
                "are not numbered from 0 or differ in shape; a file of it may be missing"
            )
        shape = (len(pieces), *pieces[0].shape)
    elif len(pieces) == 1:
        shape = pieces[0].shape
    else:
        if len({shape[-1] for shape in shapes}) > 1 or any(len(shape) != 2 for shape in shapes):
            raise ConversionError(f"{name}: {', '.join(s.name for s in sources)} do not fit")
        shape = (sum(piece.rows for piece in pieces), pieces[0].shape[-1])
    if shape[-1] == 1 and _are_vectors(name, sources):
        shape = shape[:-1]
    if least := _of_name(checkpoint.least_rows, name):
        missing = max(0, least(settings) - shape[0])
        pieces += (_Piece(Zeros(missing, shape[-1]), None, (missing, shape[-1])),)
        shape = (shape[0] + missing, *shape[1:])
    if reshape := _of_name(checkpoint.shapes, name):
        shape = reshape(shape, settings)
    change = _of_name(checkpoint.values, name)
    planned = FileTensor(name, shape, pieces, change)
    if prod(shape) != planned.rows * planned.columns:
        raise ConversionError(f"{name}: shape {shape} does not fit {sources[0].name}")
    return planned


def _are_vectors(name: str, sources: list[_Source]) -> bool:
    """Whether the last dimension is only there because elements are rows."""
    return name.endswith(".bias") or all(
        isinstance(source.matrix, PlainMatrix) and source.matrix.is_vector for source in sources
    )


def _of_name(by_ending: Mapping[str, T], name: str) -> T | None:
    """What a checkpoint says about a tensor of the file."""
    return next((value for end, value in by_ending.items() if name.endswith(end)), None)


def _piece(source: _Source, target: str, checkpoint: Checkpoint, settings: Settings) -> _Piece:
    try:
        return _reordered(source, target, checkpoint, settings)
    except ConversionError:
        raise
    except ValueError:
        raise ConversionError(
            f"{source.name} has the shape {source.matrix.shape}, which the settings of config.json "
            "do not divide"
        ) from None


def _reordered(source: _Source, target: str, checkpoint: Checkpoint, settings: Settings) -> _Piece:
    matrix = source.matrix
    *leading, rows, columns = matrix.shape
    if leading and rows == 1:  # a convolution, whose channels are rows
        rows = leading.pop()
    if target.endswith(checkpoint.ternary):
        matrix = TernaryMatrix(matrix)
    if factors := _of_name(checkpoint.factors, target):
        matrix = MultipliedRows(matrix, factors(rows, settings))
    if reorder := _of_name(checkpoint.columns, target):
        matrix = ReorderedColumns(matrix, reorder(columns, settings))
    height = _of_name(checkpoint.blocks, target)
    if source.rows is None and height is None:
        return _Piece(matrix, None, matrix.shape)
    picked = (
        np.arange(rows) if source.rows is None else source.rows.pick(rows, settings)[source.part]
    )
    starts = rows * np.arange(prod(leading))
    order = (starts[:, None] + picked).reshape(-1)
    if height is not None:
        turned = TransposedBlocks(matrix, order, height(settings))
        return _Piece(turned, None, turned.shape)
    return _Piece(matrix, order, (*leading, len(picked), columns))


def _natural(name: str) -> tuple[str, int, str]:
    """Tensors outside of layers first, then layer by layer."""
    found = _LAYER.match(name)
    if found is None:
        return ("", 0, name)
    return (found["stack"], int(found["layer"]), name)
