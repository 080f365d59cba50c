"""Metadata: typed, lazy, and without an object per vocabulary entry."""

import gc
import sys
from pathlib import Path

import numpy as np
import pytest

from fuzz.craft import Craft
from ingot.errors import GgufError
from ingot.gguf import GgufLoader, Metadata, StringArray, ValueType

SCALARS = {
    ValueType.UINT8: 255,
    ValueType.INT8: -128,
    ValueType.UINT16: 65535,
    ValueType.INT16: -32768,
    ValueType.UINT32: 2**32 - 1,
    ValueType.INT32: -(2**31),
    ValueType.FLOAT32: 0.5,
    ValueType.BOOL: 1,
    ValueType.UINT64: 2**64 - 1,
    ValueType.INT64: -(2**63),
    ValueType.FLOAT64: 0.1,
}


def open_craft(folder: Path, craft: Craft) -> Metadata:
    path = folder / "file.gguf"
    path.write_bytes(craft.bytes())
    return GgufLoader(path).metadata


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    craft = Craft().key("string", ValueType.STRING, "é".encode())
    for kind, value in SCALARS.items():
        craft.key(kind.name, kind, value)
        craft.array(f"{kind.name}.array", kind, [value, 0, value])
        craft.array(f"{kind.name}.empty", kind, [])
    craft.array("words", ValueType.STRING, [b"one", b"", b"\xff\xfeno text", "naïve".encode()])
    craft.array("no words", ValueType.STRING, [])
    return open_craft(tmp_path, craft)


@pytest.mark.parametrize("kind", SCALARS, ids=lambda kind: kind.name)
def test_numbers(metadata: Metadata, kind: ValueType) -> None:
    value = metadata[kind.name]
    assert value == SCALARS[kind]
    expected = {"b": bool, "f": float}.get(np.dtype(kind.dtype).kind, int)
    assert type(value) is expected
    array = metadata.array(f"{kind.name}.array")
    assert array.dtype == np.dtype(kind.dtype)
    assert array.tolist() == [value, 0, value]
    assert not array.flags.owndata
    assert not array.flags.writeable
    assert metadata.array(f"{kind.name}.empty").shape == (0,)
    assert metadata.entry(kind.name).type is kind
    assert metadata.entry(f"{kind.name}.array").type is ValueType.ARRAY
    assert metadata.entry(f"{kind.name}.array").element_type is kind


def test_mapping(metadata: Metadata) -> None:
    assert len(metadata) == 3 + 3 * len(SCALARS)
    assert next(iter(metadata)) == "string"
    assert "words" in metadata
    assert "word" not in metadata
    assert metadata.get("word") is None
    with pytest.raises(KeyError):
        metadata["word"]


def test_getters(metadata: Metadata) -> None:
    assert metadata.string("string") == "é"
    assert metadata.integer("INT64") == -(2**63)
    assert metadata.number("FLOAT32") == 0.5
    assert isinstance(metadata.number("INT8"), float)
    assert metadata.boolean("BOOL") is True
    assert metadata.strings("words")[3] == "naïve"
    assert metadata.array("INT8.array").tolist() == [-128, 0, -128]


def test_defaults(metadata: Metadata) -> None:
    assert metadata.string("absent", None) is None
    assert metadata.integer("absent", 3) == 3
    assert metadata.number("absent", 1.5) == 1.5
    assert metadata.number("absent", None) is None
    assert metadata.boolean("absent", False) is False
    assert metadata.strings("absent", ()) == ()
    assert metadata.array("absent", None) is None
    assert metadata.integer("INT8", 3) == -128
    assert isinstance(metadata.number("UINT8", 255), float)


GETTERS = ["string", "integer", "number", "boolean", "strings", "array"]


@pytest.mark.parametrize("getter", GETTERS)
def test_missing_key(metadata: Metadata, getter: str) -> None:
    with pytest.raises(GgufError, match=r"absent: this key is missing") as caught:
        getattr(metadata, getter)("absent")
    assert caught.value.field == "absent"


@pytest.mark.parametrize(
    ("getter", "accepted"),
    [
        ("string", {"string"}),
        ("integer", {"INT8"}),
        ("number", {"INT8", "FLOAT64"}),
        ("boolean", {"BOOL"}),
        ("strings", {"words"}),
        ("array", {"INT8.array", "BOOL.array"}),
    ],
)
def test_wrong_type(metadata: Metadata, getter: str, accepted: set[str]) -> None:
    keys = {"string", "INT8", "FLOAT64", "BOOL", "words", "INT8.array", "BOOL.array"}
    for key in accepted:
        getattr(metadata, getter)(key)
    for key in keys - accepted:
        with pytest.raises(GgufError, match=r"expected .*, but the file has") as caught:
            getattr(metadata, getter)(key, None)
        assert caught.value.field == key
        assert caught.value.offset == metadata.entry(key).offset


def test_string_array(metadata: Metadata) -> None:
    words = metadata.strings("words")
    assert isinstance(words, StringArray)
    assert len(words) == 4
    assert list(words) == ["one", "", "\ufffd\ufffdno text", "naïve"]
    assert words.raw(2) == b"\xff\xfeno text"
    assert words[-1] == "naïve"
    assert list(words[1:3]) == ["", "\ufffd\ufffdno text"]
    assert words.index("") == 1
    assert "one" in words
    with pytest.raises(IndexError):
        words[4]
    assert list(metadata.strings("no words")) == []


def test_native_view_of_a_string_array(metadata: Metadata) -> None:
    words = metadata.strings("words")
    assert (words.data.dtype, words.offsets.dtype) == (np.uint8, np.uint64)
    at = int(words.offsets[3])
    size = int.from_bytes(words.data[at : at + 8].tobytes(), "little")
    assert words.data[at + 8 : at + 8 + size].tobytes() == "naïve".encode()


def test_text_that_is_not_text(tmp_path: Path) -> None:
    metadata = open_craft(tmp_path, Craft().key("name", ValueType.STRING, b"a\xffb"))
    assert metadata.string("name") == "a\ufffdb"


def test_no_object_per_entry(tmp_path: Path) -> None:
    """A vocabulary adds its positions, 8 bytes an entry, and nothing else."""
    path = tmp_path / "vocabulary.gguf"
    entries = 50_000
    words = [b"%d" % number for number in range(entries)]
    scores = [0.0] * entries
    craft = Craft().array("words", ValueType.STRING, words)
    path.write_bytes(craft.array("scores", ValueType.FLOAT32, scores).bytes())
    del words, scores, craft
    GgufLoader(path).close()
    gc.collect()
    before = sys.getallocatedblocks()
    loader = GgufLoader(path)
    strings, numbers = loader.metadata.strings("words"), loader.metadata.array("scores")
    assert sys.getallocatedblocks() - before < 200
    assert strings.offsets.nbytes == 8 * entries
    assert not numbers.flags.owndata
    assert strings[entries - 1] == str(entries - 1)
