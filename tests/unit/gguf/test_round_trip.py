"""Random files: ours in the `gguf` package and in our loader, the package's in our loader."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingot.gguf import GgmlType, GgufLoader, GgufWriter, StringArray, ValueType

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
RANGES = {
    ValueType.UINT8: (0, 2**8 - 1),
    ValueType.INT8: (-(2**7), 2**7 - 1),
    ValueType.UINT16: (0, 2**16 - 1),
    ValueType.INT16: (-(2**15), 2**15 - 1),
    ValueType.UINT32: (0, 2**32 - 1),
    ValueType.INT32: (-(2**31), 2**31 - 1),
    ValueType.UINT64: (0, 2**64 - 1),
    ValueType.INT64: (-(2**63), 2**63 - 1),
}
ELEMENTS: dict[ValueType, st.SearchStrategy[Any]] = {
    ValueType.FLOAT32: st.floats(width=32, allow_nan=False),
    ValueType.FLOAT64: st.floats(allow_nan=False),
    ValueType.BOOL: st.booleans(),
    ValueType.STRING: TEXT,
} | {kind: st.integers(low, high) for kind, (low, high) in RANGES.items()}
TYPES = [kind for kind in GgmlType if kind.name in gguf.GGMLQuantizationType.__members__]


@dataclass(frozen=True)
class Value:
    type: ValueType
    value: Any  # a list if it is an array

    @property
    def is_array(self) -> bool:
        return isinstance(self.value, list)


@dataclass(frozen=True)
class Tensor:
    type: GgmlType
    shape: tuple[int, ...]
    blocks: NDArray[np.uint8]  # in rows


@dataclass(frozen=True)
class Model:
    metadata: dict[str, Value]
    tensors: dict[str, Tensor]
    alignment: int


@st.composite
def values(draw: st.DrawFn) -> Value:
    kind = draw(st.sampled_from(sorted(ELEMENTS)))
    array = st.lists(ELEMENTS[kind], min_size=1, max_size=6)
    return Value(kind, draw(st.one_of(ELEMENTS[kind], array)))


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    kind = draw(st.sampled_from(TYPES))
    outer = draw(st.lists(st.integers(1, 3), max_size=3))
    blocks = draw(st.integers(1, 3 if kind.block_size > 1 else 9))
    seed = draw(st.integers(0, 2**32 - 1))
    shape = (*outer, blocks * kind.block_size)
    rows = (*outer, blocks * kind.block_bytes)
    data = np.random.default_rng(seed).integers(0, 256, rows, np.uint8)
    return Tensor(kind, shape, data)


MODELS = st.builds(
    Model,
    metadata=st.dictionaries(TEXT.map(lambda text: f"key.{text}"), values(), max_size=6),
    tensors=st.dictionaries(TEXT.map(lambda text: f"t.{text}"[:15]), tensors(), max_size=5),
    alignment=st.sampled_from([8, 16, 32, 64, 256]),
)


def check_ours(loader: GgufLoader, model: Model) -> None:
    metadata: Mapping[str, Any] = loader.metadata
    for key, expected in model.metadata.items():
        entry = loader.metadata.entry(key)
        assert entry.element_type is expected.type
        assert (entry.type is ValueType.ARRAY) == expected.is_array
        value = metadata[key]
        assert (list(value) if isinstance(value, StringArray | np.ndarray) else value) == (
            expected.value
        )
    assert set(loader.tensors) == set(model.tensors)
    assert loader.alignment == model.alignment
    for name, tensor in model.tensors.items():
        ours = loader.tensors[name]
        assert (ours.type, ours.shape) == (tensor.type, tensor.shape)
        assert ours.offset % model.alignment == 0
        assert ours.data.tobytes() == tensor.blocks.tobytes()


def check_theirs(paths: list[Path], model: Model) -> None:
    readers = [gguf.GGUFReader(path) for path in paths]
    for key, expected in model.metadata.items():
        field = readers[0].fields[key]
        assert field.types[-1].value == expected.type.value
        assert (field.types[0] is gguf.GGUFValueType.ARRAY) == expected.is_array
        assert field.contents() == expected.value
    theirs = {tensor.name: tensor for reader in readers for tensor in reader.tensors}
    assert set(theirs) == set(model.tensors)
    for name, tensor in model.tensors.items():
        assert theirs[name].tensor_type.value == tensor.type.value
        assert tuple(theirs[name].shape.tolist()) == tensor.shape[::-1]
        assert theirs[name].data.tobytes() == tensor.blocks.tobytes()
    for reader in readers:
        reader.data._mmap.close()  # type: ignore[attr-defined]


def write_ours(path: Path, model: Model, max_tensors: int | None) -> list[Path]:
    writer = GgufWriter(path, alignment=model.alignment, max_tensors=max_tensors)
    for key, value in model.metadata.items():
        writer.add(key, value.value, value.type)
    for name, tensor in model.tensors.items():
        writer.add_tensor(name, tensor.blocks, tensor.type)
    return writer.write()


def write_theirs(path: Path, model: Model) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(model.alignment)
    for key, value in model.metadata.items():
        kind = gguf.GGUFValueType(value.type.value)
        if value.is_array:
            writer.add_key_value(key, value.value, gguf.GGUFValueType.ARRAY, sub_type=kind)
        else:
            writer.add_key_value(key, value.value, kind)
    for name, tensor in model.tensors.items():
        kind = gguf.GGMLQuantizationType(tensor.type.value)
        writer.add_tensor(name, tensor.blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@settings(deadline=None)
@given(model=MODELS, max_tensors=st.one_of(st.none(), st.integers(1, 3)))
def test_ours_in_both_readers(model: Model, max_tensors: int | None) -> None:
    with TemporaryDirectory() as folder:
        paths = write_ours(Path(folder) / "model.gguf", model, max_tensors)
        with GgufLoader(paths[-1]) as loader:
            check_ours(loader, model)
        check_theirs(paths, model)


@settings(deadline=None)
@given(model=MODELS)
def test_theirs_in_our_loader(model: Model) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_theirs(path, model)
        with GgufLoader(path) as loader:
            check_ours(loader, model)


@settings(deadline=None)
@given(model=MODELS)
def test_copying_a_file_changes_nothing(model: Model) -> None:
    with TemporaryDirectory() as folder:
        (path,) = write_ours(Path(folder) / "model.gguf", model, None)
        loader = GgufLoader(path)
        copy = GgufWriter(Path(folder) / "copy.gguf", alignment=loader.alignment)
        for key in loader.metadata:
            if key != "general.alignment":
                entry = loader.metadata.entry(key)
                copy.add(key, loader.metadata[key], entry.element_type)
        for tensor in loader.tensors.values():
            copy.add_tensor(tensor.name, tensor.data, tensor.type, tensor.shape)
        (copied,) = copy.write()
        assert copied.read_bytes() == path.read_bytes()
