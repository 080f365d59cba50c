"""From the folder of a checkpoint to the file that it becomes.

In: a folder. Out: a `Conversion`. `plan` reads headers, settings and the vocabulary, and checks
that the result can run. `Conversion.write` streams the tensors into a file; `Conversion.open` gives
the same model without a file.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ingot.arrays import Bytes, Floats
from ingot.convert.folder import CheckpointFolder
from ingot.convert.keys import network_keys, rope_tensors
from ingot.convert.packed import unpacked
from ingot.convert.safetensors import StoredTensor
from ingot.convert.special_keys import special_keys, template_keys
from ingot.convert.tensors import FileTensor, count_mtp_layers, plan_numbers, plan_tensors
from ingot.convert.unwritten import UnwrittenFile
from ingot.convert.vocabulary import Vocabulary, read_vocabulary
from ingot.errors import ConversionError, QuantError
from ingot.files import FileRange, require_room
from ingot.gguf import GgmlType, GgufLoader, GgufWriter, ValueType
from ingot.gguf.value_encoding import Writable
from ingot.models import build_graph, checkpoints, has_own_mix_rules
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.settings import Settings
from ingot.quant import encode, require_encodable
from ingot.quantize.mixes import MIXES, Mix, ModelShape, choose_types, mix_of
from ingot.store import checkpoint_name
from ingot.tokenizer import Tokenizer

_OUTPUT = "output.weight"
_PIECE = 1 << 20  # elements that are made at once; the memory of so many is used again
_RELEASED = 1 << 24  # elements, after which the memory of what was read is given back
_QUANTIZATION_VERSION = 2
_POOLINGS = {"mean_tokens": 1, "cls_token": 2, "lasttoken": 3}


@dataclass(frozen=True, slots=True)
class Conversion:
    """A checkpoint as the file that it becomes; nothing is written yet."""

    source: Path
    architecture: str
    model_class: str
    mix: Mix
    keys: Mapping[str, tuple[Writable, ValueType | None]]
    tensors: Mapping[str, FileTensor]
    constants: Mapping[str, Floats]
    types: Mapping[str, GgmlType]

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(prod(tensor.shape) for tensor in self.tensors.values())

    def writer(self, path: Path) -> GgufWriter:
        """A writer that has all keys and tensors."""
        writer = GgufWriter(path)
        for key, (value, kind) in self.keys.items():
            writer.add(key, value, kind)
        for name, values in self.constants.items():
            writer.add_tensor(name, values)
        for name, tensor in self.tensors.items():
            pieces = partial(self._pieces, name)
            writer.add_streamed_tensor(name, self.types[name], tensor.shape, pieces)
        return writer

    def write(self, path: Path, progress: Callable[[int, int], None] | None = None) -> None:
        """Write the file; it appears under its name when it is complete.

        `progress(done, total)` receives bytes.
        """
        writer = self.writer(path)
        total, done = writer.data_bytes, 0
        require_room(path.parent.resolve(), total, path.name, "choose another place with -o")

        def report(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done, total)

        writer.write(report)

    def open(self) -> GgufLoader:
        """The model without a file: tensors are made when they are used."""
        return UnwrittenFile(self.source, self.writer(self.source), self._bytes_of).loader()

    def _pieces(self, name: str) -> Iterator[Bytes | FileRange]:
        """The blocks of a tensor, some at a time: copied from the checkpoint if they are there."""
        stored = self.tensors[name].stored_as(self.types[name])
        return self._made(name) if stored is None else stored.ranges(_RELEASED)

    def _made(self, name: str) -> Iterator[Bytes]:
        """The blocks of a tensor, some rows at a time."""
        tensor, kind = self.tensors[name], self.types[name]
        step = max(1, _PIECE // tensor.columns)
        if tensor.columns == 1 and len(tensor.shape) > 1:  # rows of the file are vectors
            step = tensor.rows
        is_stored, made = tensor.is_stored_as(kind), 0
        for first in range(0, tensor.rows, step):
            last = min(first + step, tensor.rows)
            if is_stored:
                yield tensor.read_stored(first, last)
            elif kind is GgmlType.F32:
                yield np.ascontiguousarray(tensor.read(first, last)).reshape(-1).view(np.uint8)
            else:
                values = tensor.read(first, last)
                require_encodable(values, kind, name)
                yield encode(values, kind).reshape(-1)
            made += step * tensor.columns
            if made >= _RELEASED or last == tensor.rows:
                tensor.release()
                made = 0

    def _bytes_of(self, name: str) -> Bytes:
        if name in self.constants:
            return self.constants[name].view(np.uint8).reshape(-1)
        stored = self.tensors[name].stored_as(self.types[name])
        if stored is None:
            return np.concatenate(list(self._made(name)))
        odd = stored.data.ctypes.data % self.types[name].block_bytes  # the header has any length
        return stored.data.copy() if odd else stored.data


def plan(path: Path, type: str | None = None) -> Conversion:
    """Read a checkpoint and decide how it is converted; `ConversionError` if it cannot be.

    `type`: the type of matrices, or one of llama.cpp's mixes. Without it, 16-bit and 32-bit floats
    keep their type.
    """
    folder = CheckpointFolder.open(path)
    model = folder.model_class
    architecture, checkpoint, settings = stored_form(folder.config, model)
    stored = folder.tensors()
    mix = mix_of(type) if type is not None else _stored_mix(stored)
    if mix.needs_imatrix:
        raise QuantError(f"{mix.name} needs an importance matrix: use `ingot quantize --imatrix`")
    matrices = unpacked(stored, folder.config)
    tensors = plan_tensors(checkpoint, settings, matrices)
    if "token_embd.weight" not in tensors:
        raise ConversionError(f"{path} has no embedding; its files are incomplete")
    if checkpoint.own_output and checkpoint.own_output(settings) and _OUTPUT not in tensors:
        tensors[_OUTPUT] = replace(tensors["token_embd.weight"], name=_OUTPUT)
    network = network_keys(checkpoint, settings, mtp_layers=count_mtp_layers(tensors))
    rows = tensors["token_embd.weight"].shape[0]
    network["vocab_size"] = rows
    if (pooling := _pooling(folder)) is not None:
        network.setdefault("pooling_type", pooling)
    vocabulary = read_vocabulary(folder, checkpoint).padded(rows)
    conversion = Conversion(
        source=path,
        architecture=architecture,
        model_class=model,
        mix=mix,
        keys={
            **_keys(folder, architecture, mix, network, vocabulary),
            **{
                key: (numbers, ValueType.FLOAT32)
                for key, numbers in plan_numbers(checkpoint, settings, matrices).items()
            },
        },
        tensors=tensors,
        constants=_rope_tensors(settings, network),
        types=_types(mix, architecture, network, tensors),
    )
    with conversion.open() as loader:  # whether it can run is known before anything is written
        build_graph(loader)
        Tokenizer(loader.metadata).encode("")
    return conversion


def summary(path: Path) -> tuple[str, str]:
    """The architecture of a checkpoint, and the float type that most of its weights have."""
    folder = CheckpointFolder.open(path)
    architecture, _, _ = stored_form(folder.config, folder.model_class)
    return architecture, _stored_mix(folder.tensors()).name


def stored_form(config: Mapping[str, Any], model: str) -> tuple[str, Checkpoint, Settings]:
    """The architecture of a checkpoint, how it is stored, and its settings."""
    known = checkpoints()
    if model not in known:
        near = get_close_matches(model, known, n=3)
        raise ConversionError(
            f"models of the class {model} cannot be converted yet"
            + (f" (near it: {', '.join(near)})" if near else "")
            + "; look for a GGUF file of the model (`ingot search`), or for one of the classes "
            + ", ".join(sorted(known))
        )
    for architecture, checkpoint in known[model]:
        settings = Settings.of(config, checkpoint.defaults)
        if checkpoint.accepts(settings):
            return architecture, checkpoint, settings
    names = " or ".join(sorted({architecture for architecture, _ in known[model]}))
    raise ConversionError(
        f"the settings in config.json fit no form of {model} that is known ({names}); look for a "
        "GGUF file of the model (`ingot search`)"
    )


def _rope_tensors(settings: Settings, network: Mapping[str, Value]) -> dict[str, Floats]:
    size = network.get("rope.dimension_count")
    return rope_tensors(settings, size) if isinstance(size, int) else {}


def _stored_mix(stored: Mapping[str, StoredTensor]) -> Mix:
    """The float type that most weights of a checkpoint have."""
    sizes = dict.fromkeys(("BF16", "F16", "F32"), 0)
    for tensor in stored.values():
        if tensor.type in sizes:
            sizes[tensor.type] += tensor.nbytes
        elif tensor.type.startswith("F8"):
            sizes["BF16"] += tensor.nbytes
        elif tensor.type.startswith("I32"):  # AWQ and GPTQ, whose scales are F16
            sizes["F16"] += tensor.nbytes
    return MIXES[max(sizes, key=sizes.__getitem__)]


def _types(
    mix: Mix, architecture: str, network: Mapping[str, Value], tensors: Mapping[str, FileTensor]
) -> dict[str, GgmlType]:
    def number(key: str, default: int) -> int:
        value = network.get(key)
        return value if type(value) is int and value > 0 else default

    heads = number("attention.head_count", 1)
    model = ModelShape(
        layers=number("block_count", 1),
        experts=number("expert_count", 0),
        queries_per_key=heads // number("attention.head_count_kv", heads),
        tied=_OUTPUT not in tensors,
        own_rules=has_own_mix_rules(architecture),
    )
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    chosen = choose_types(mix, model, shapes)
    kept = {name: kind for name, t in tensors.items() if (kind := t.kept_type) is not None}
    return {**dict.fromkeys(tensors, GgmlType.F32), **chosen, **kept}


def _pooling(folder: CheckpointFolder) -> int | None:
    """The pooling that `sentence-transformers` states."""
    described = folder.json("1_Pooling/config.json")
    for name, number in _POOLINGS.items():
        if described.get(f"pooling_mode_{name}") is True:
            return number
    return None


def _keys(
    folder: CheckpointFolder,
    architecture: str,
    mix: Mix,
    network: Mapping[str, Value],
    vocabulary: Vocabulary,
) -> dict[str, tuple[Writable, ValueType | None]]:
    keys: dict[str, tuple[Writable, ValueType | None]] = {
        "general.architecture": (architecture, None),
        "general.type": ("model", None),
        "general.name": (checkpoint_name(folder.path) or architecture, None),
        "general.file_type": (mix.file_type, None),
        "general.quantization_version": (_QUANTIZATION_VERSION, None),
    }
    special = {**special_keys(folder, vocabulary), **template_keys(folder)}
    for key, value in {**network, **special}.items():
        if value is not None:
            shared = key.startswith("tokenizer.")
            numbers = isinstance(value, list) and all(type(each) is int for each in value)
            kind = ValueType.INT32 if numbers else None  # as llama.cpp's converter has it
            keys[key if shared else f"{architecture}.{key}"] = (value, kind)
    ggml = "tokenizer.ggml"
    keys[f"{ggml}.model"] = (vocabulary.kind, None)
    if vocabulary.pre is not None:
        keys[f"{ggml}.pre"] = (vocabulary.pre, None)
    elif vocabulary.kind in ("llama", "t5"):
        keys[f"{ggml}.pre"] = ("default", None)
    keys[f"{ggml}.tokens"] = (vocabulary.tokens, ValueType.STRING)
    keys[f"{ggml}.token_type"] = ([int(kind) for kind in vocabulary.types], ValueType.INT32)
    if vocabulary.scores is not None:
        keys[f"{ggml}.scores"] = (vocabulary.scores, ValueType.FLOAT32)
    if vocabulary.merges is not None:
        keys[f"{ggml}.merges"] = (vocabulary.merges, ValueType.STRING)
    if vocabulary.charsmap is not None:
        keys[f"{ggml}.precompiled_charsmap"] = (
            np.frombuffer(vocabulary.charsmap, np.uint8),
            ValueType.UINT8,
        )
    return keys
