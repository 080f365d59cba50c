"""Safetensors files: what a valid one holds, and that no damaged one is read."""

import json
from pathlib import Path
from struct import pack
from typing import Any

import numpy as np
import pytest

from checkpoints import write_safetensors
from ingot.convert.safetensors import as_array, read_safetensors
from ingot.errors import ConversionError


def test_tensors_are_views_of_the_file(tmp_path: Path) -> None:
    values = {"a": np.arange(6, dtype="f4").reshape(2, 3), "b": np.arange(4, dtype="f2")}
    write_safetensors(tmp_path / "x.safetensors", values)
    found = read_safetensors(tmp_path / "x.safetensors")
    assert {name: tensor.type for name, tensor in found.items()} == {"a": "F32", "b": "F16"}
    for name, expected in values.items():
        np.testing.assert_array_equal(as_array(found[name]), expected)
        assert not as_array(found[name]).flags.owndata


def test_metadata_and_scalars(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "s": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
    }
    text = json.dumps(header).encode()
    (tmp_path / "x").write_bytes(pack("<Q", len(text)) + text + pack("<f", 2.5))
    assert float(as_array(read_safetensors(tmp_path / "x")["s"])) == 2.5


def entry(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


DAMAGED = {
    "a list": ([], 8),
    "no object": ({"a": 1}, 8),
    "unknown type": ({"a": entry(dtype="F4")}, 8),
    "type is no text": ({"a": entry(dtype=["F32"])}, 8),
    "negative size": ({"a": entry(shape=[-2])}, 8),
    "size is a float": ({"a": entry(shape=[2.0])}, 8),
    "size is true": ({"a": entry(shape=[True, 2])}, 8),
    "huge size": ({"a": entry(shape=[2**62, 2**62, 4])}, 8),
    "too many sizes": ({"a": entry(shape=[1] * 9 + [2])}, 8),
    "no shape": ({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, 8),
    "offsets swapped": ({"a": entry(data_offsets=[8, 0])}, 8),
    "one offset": ({"a": entry(data_offsets=[8])}, 8),
    "offset beyond the file": ({"a": entry(data_offsets=[4, 12])}, 8),
    "wrong number of bytes": ({"a": entry(data_offsets=[0, 4])}, 8),
    "overlap": ({"a": entry(), "b": entry(data_offsets=[4, 12])}, 12),
    "the same bytes twice": ({"a": entry(), "b": entry()}, 16),
    "gap": ({"a": entry(), "b": entry(data_offsets=[12, 20])}, 20),
    "bytes after the last": ({"a": entry()}, 12),
    "bytes before the first": ({"a": entry(data_offsets=[4, 12])}, 12),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_headers(kind: str, tmp_path: Path) -> None:
    header, size = DAMAGED[kind]
    text = json.dumps(header).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(pack("<Q", len(text)) + text + bytes(size))
    with pytest.raises(ConversionError, match=r"x\.safetensors is not a valid safetensors file"):
        read_safetensors(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\0",
        pack("<Q", 2**63),
        pack("<Q", 100) + b"{}",
        pack("<Q", 1) + b"{",
        pack("<Q", 4) + b"\xff\xfe\xfd\xfc",
        pack("<Q", 200_000) + b"[" * 200_000,
        pack("<Q", 17) + b'{"a":{},"a": {} }',
    ],
)
def test_what_is_no_safetensors_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(ConversionError, match="is not a valid safetensors file"):
        read_safetensors(path)


def test_a_name_that_is_there_twice(tmp_path: Path) -> None:
    one = json.dumps(entry())
    text = f'{{"a": {one}, "a": {one}}}'.encode()
    (tmp_path / "x").write_bytes(pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(ConversionError, match="a name is there twice"):
        read_safetensors(tmp_path / "x")


def test_every_cut_of_a_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": np.arange(6, dtype="f4"), "b": np.arange(3, dtype="f2")})
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ConversionError):
            read_safetensors(path)
