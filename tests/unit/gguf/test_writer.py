"""GgufWriter: types, checks, streaming, and files that are whole or not there."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fuzz.craft import Craft
from ingot.errors import GgufError
from ingot.gguf import GgmlType, GgufLoader, GgufWriter, ValueType


def written(folder: Path, key: str, value: Any, type: ValueType | None = None) -> GgufLoader:
    writer = GgufWriter(folder / "file.gguf")
    writer.add(key, value, type)
    (path,) = writer.write()
    return GgufLoader(path)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, ValueType.BOOL),
        (0, ValueType.UINT32),
        (2**32 - 1, ValueType.UINT32),
        (2**32, ValueType.UINT64),
        (-1, ValueType.INT32),
        (-(2**31) - 1, ValueType.INT64),
        (1.5, ValueType.FLOAT32),
        ("text", ValueType.STRING),
        (np.uint8(3), ValueType.UINT8),
        (np.float64(0.1), ValueType.FLOAT64),
        (np.bool_(True), ValueType.BOOL),
    ],
)
def test_inferred_types(tmp_path: Path, value: Any, expected: ValueType) -> None:
    metadata = written(tmp_path, "key", value).metadata
    assert metadata.entry("key").type is expected
    assert metadata["key"] == value


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, False], ValueType.BOOL),
        ([1, 2], ValueType.UINT32),
        ([1, -2], ValueType.INT32),
        ([-1, 2**31], ValueType.INT64),
        ([1, 2.5], ValueType.FLOAT32),
        (("a", "é"), ValueType.STRING),
        ([np.int16(1), np.int16(2)], ValueType.INT16),
        (np.array([1, 2], np.int8), ValueType.INT8),
        (np.array([], np.float64), ValueType.FLOAT64),
        (np.arange(10, dtype=">u2")[::3], ValueType.UINT16),
    ],
)
def test_inferred_array_types(tmp_path: Path, values: Any, expected: ValueType) -> None:
    metadata = written(tmp_path, "key", values).metadata
    entry = metadata.entry("key")
    assert (entry.type, entry.element_type) == (ValueType.ARRAY, expected)
    assert list(metadata["key"]) == list(values)  # type: ignore[arg-type]


def test_explicit_types(tmp_path: Path) -> None:
    assert written(tmp_path, "k", 7, ValueType.UINT8).metadata.entry("k").type is ValueType.UINT8
    empty = written(tmp_path, "k", [], ValueType.STRING).metadata
    assert list(empty.strings("k")) == []
    assert written(tmp_path, "k", [1, 2], ValueType.FLOAT64).metadata.array("k").tolist() == [1, 2]
    wide = np.array([1, 2], np.int64)
    assert written(tmp_path, "k", wide, ValueType.UINT8).metadata.array("k").dtype == np.uint8


def test_bytes_stay_as_they_are(tmp_path: Path) -> None:
    tokens = written(tmp_path, "k", [b"\xff\0", "é", b""]).metadata.strings("k")
    assert [tokens.raw(i) for i in range(3)] == [b"\xff\0", "é".encode(), b""]
    again = written(tmp_path, "k", tokens).metadata.strings("k")
    assert [again.raw(i) for i in range(3)] == [b"\xff\0", "é".encode(), b""]


@pytest.mark.parametrize(
    ("value", "type", "reason"),
    [
        (256, ValueType.UINT8, "256 does not fit UINT8"),
        ([1, -1], ValueType.UINT64, "-1 does not fit"),
        (2**64, None, "does not fit"),
        (1.5, ValueType.INT32, "needs an integer"),
        (True, ValueType.INT32, "needs an integer"),
        (1, ValueType.BOOL, "needs True or False"),
        (True, ValueType.FLOAT32, "needs a number"),
        (1e300, ValueType.FLOAT32, "does not fit FLOAT32"),
        (10**400, ValueType.FLOAT64, "does not fit FLOAT64"),
        (3, ValueType.STRING, "needs str or bytes"),
        ("\ud800", None, "UTF-8"),
        ([], None, "empty array"),
        ([1, "a"], None, "an array of these"),
        ([[1], [2]], None, "an array of these"),
        ([1], ValueType.ARRAY, "arrays of arrays"),
        (np.zeros((2, 2)), None, "one dimension"),
        (np.zeros(2, np.float16), None, "float16"),
        (np.array(["a"]), None, "no metadata type"),
    ],
)
def test_bad_values(tmp_path: Path, value: Any, type: ValueType | None, reason: str) -> None:
    with pytest.raises(GgufError, match=reason) as caught:
        GgufWriter(tmp_path / "file.gguf").add("key", value, type)
    assert caught.value.field == "key"


def test_infinities_are_values(tmp_path: Path) -> None:
    values = written(tmp_path, "k", [float("inf"), float("-inf"), float("nan")]).metadata.array("k")
    assert np.array_equal(values, [np.inf, -np.inf, np.nan], equal_nan=True)


def test_bad_keys(tmp_path: Path) -> None:
    writer = GgufWriter(tmp_path / "file.gguf")
    writer.add("key", 1)
    with pytest.raises(GgufError, match="added before"):
        writer.add("key", 2)
    for key in ("", "x" * 65536, "\ud800"):
        with pytest.raises(GgufError):
            writer.add(key, 1)
    for key in ("general.alignment", "split.no", "split.count", "split.tensors.count"):
        with pytest.raises(GgufError, match="sets this key itself"):
            writer.add(key, 1)


@pytest.mark.parametrize("type", ["f4", "f2", "f8", "i1", "i2", "i4", "i8"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_plain_tensors(tmp_path: Path, type: str, order: str) -> None:
    values = np.arange(-12, 12).reshape(2, 3, 4).astype(order + type)
    writer = GgufWriter(tmp_path / "file.gguf")
    writer.add_tensor("whole", values)
    writer.add_tensor("strided", values[:, ::2, 1:3])
    loader = GgufLoader(writer.write()[0])
    for name, expected in (("whole", values), ("strided", values[:, ::2, 1:3])):
        tensor = loader.tensors[name]
        assert tensor.type.name == f"{type[0].upper()}{int(type[1]) * 8}"
        assert tensor.shape == expected.shape
        assert np.array_equal(tensor.data.view("<" + type).reshape(tensor.shape), expected)


def test_blocks(tmp_path: Path) -> None:
    rows = np.arange(2 * 3 * 36, dtype=np.uint8).reshape(2, 3, 36)
    writer = GgufWriter(tmp_path / "file.gguf")
    writer.add_tensor("rows", rows, GgmlType.Q4_0)
    writer.add_tensor("flat", rows.reshape(-1), GgmlType.Q4_0, (6, 64))
    writer.add_tensor("bf16", np.arange(8, dtype=np.uint8), GgmlType.BF16)
    loader = GgufLoader(writer.write()[0])
    assert loader.tensors["rows"].shape == (2, 3, 64)
    assert loader.tensors["rows"].data.tobytes() == rows.tobytes()
    assert loader.tensors["flat"].shape == (6, 64)
    assert loader.tensors["flat"].data.tobytes() == rows.tobytes()
    assert loader.tensors["bf16"].shape == (4,)


FLOATS = np.zeros((2, 4), np.float32)


@pytest.mark.parametrize(
    ("name", "values", "type", "shape", "reason"),
    [
        ("", FLOATS, None, None, "1 to 63"),
        ("x" * 64, FLOATS, None, None, "1 to 63"),
        ("\ud800", FLOATS, None, None, "UTF-8"),
        ("t", np.float32(1), None, None, "1 to 4 dimensions"),
        ("t", np.zeros((1, 1, 1, 1, 1), np.float32), None, None, "1 to 4 dimensions"),
        ("t", np.zeros((3, 0), np.float32), None, None, "none of them 0"),
        ("t", np.zeros(4, np.uint8), None, None, "needs a type"),
        ("t", np.zeros(4, np.complex64), None, None, "needs a type"),
        ("t", np.zeros(17, np.uint8), GgmlType.Q4_0, None, "rows of 17 bytes"),
        ("t", np.zeros(36, np.uint8), GgmlType.Q4_0, (48,), "rows of 48"),
    ],
)
def test_bad_tensors(
    tmp_path: Path, name: str, values: NDArray[Any], type: Any, shape: Any, reason: str
) -> None:
    with pytest.raises(GgufError, match=reason):
        GgufWriter(tmp_path / "file.gguf").add_tensor(name, values, type, shape)


def test_duplicate_tensor(tmp_path: Path) -> None:
    writer = GgufWriter(tmp_path / "file.gguf")
    writer.add_tensor("t", FLOATS)
    with pytest.raises(GgufError, match="added before"):
        writer.add_tensor("t", FLOATS)


@pytest.mark.parametrize(
    ("produced", "reason"),
    [(np.zeros(3, np.float32), "12 bytes of data"), (np.zeros(4, np.float64), "float64 values")],
)
def test_data_that_do_not_fit_leave_no_file(
    tmp_path: Path, produced: NDArray[Any], reason: str
) -> None:
    writer = GgufWriter(tmp_path / "file.gguf")
    writer.add_lazy_tensor("t", GgmlType.F32, (4,), lambda: produced)
    with pytest.raises(GgufError, match=reason):
        writer.write()
    assert list(tmp_path.iterdir()) == []


def test_failure_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.gguf"
    path.write_bytes(b"precious")

    def fail() -> NDArray[Any]:
        raise KeyboardInterrupt

    writer = GgufWriter(path)
    writer.add_tensor("good", FLOATS)
    writer.add_lazy_tensor("bad", GgmlType.F32, (4,), fail)
    with pytest.raises(KeyboardInterrupt):
        writer.write()
    assert path.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [path]


def test_rewriting_a_file_in_place(tmp_path: Path) -> None:
    path = tmp_path / "file.gguf"
    writer = GgufWriter(path)
    writer.add_tensor("t", np.arange(5000, dtype=np.int32))
    writer.write()
    loader = GgufLoader(path)
    copy = GgufWriter(path)
    copy.add("added", "key")
    for tensor in loader.tensors.values():
        copy.add_tensor(tensor.name, tensor.data, tensor.type, tensor.shape)
    copy.write()
    again = GgufLoader(path)
    assert again.metadata["added"] == "key"
    assert again.tensors["t"].data.tobytes() == np.arange(5000, dtype=np.int32).tobytes()


def test_one_tensor_at_a_time(tmp_path: Path) -> None:
    """A producer runs when its turn comes, when what came before has been written."""
    path = tmp_path / "file.gguf"
    sizes: list[int] = []

    def produce() -> NDArray[Any]:
        (draft,) = tmp_path.iterdir()
        sizes.append(draft.stat().st_size)
        return np.zeros(100_000, np.float32)

    writer = GgufWriter(path)
    for number in range(3):
        writer.add_lazy_tensor(f"t{number}", GgmlType.F32, (100_000,), produce)
    assert sizes == []
    writer.write()
    assert sizes[0] < 400_000
    assert 400_000 <= sizes[1] < 800_000
    assert sizes[2] >= 800_000


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    (path,) = GgufWriter(tmp_path / "file.gguf").write()
    assert path.stat().st_mode == ordinary.stat().st_mode
    assert os.access(path, os.R_OK)


def test_layout(tmp_path: Path) -> None:
    """Byte for byte what the format asks for."""
    writer = GgufWriter(tmp_path / "file.gguf", alignment=64)
    writer.add("a", 1)
    writer.add("b", ["x", b"y"])
    writer.add_tensor("t", np.array([1, 2, 3], np.int8))
    writer.add_tensor("u", np.array([[4, 5]], np.int8))
    (path,) = writer.write()
    craft = (
        Craft(alignment=64)
        .key("general.alignment", ValueType.UINT32, 64)
        .key("a", ValueType.UINT32, 1)
        .array("b", ValueType.STRING, [b"x", b"y"])
        .tensor("t", [3], GgmlType.I8, bytes([1, 2, 3]))
        .tensor("u", [2, 1], GgmlType.I8, bytes([4, 5]) + bytes(62))
    )
    assert path.read_bytes() == craft.bytes()


@pytest.mark.parametrize("alignment", [0, -32, 48, 2**32])
def test_bad_alignment(tmp_path: Path, alignment: int) -> None:
    with pytest.raises(GgufError, match="power of two"):
        GgufWriter(tmp_path / "file.gguf", alignment=alignment)
