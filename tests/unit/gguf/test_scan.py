"""The header scan: what it accepts, and the error of each kind of bad file."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import gguf
import numpy as np
import pytest

from fuzz.craft import Craft, u32, u64
from ingot import _native
from ingot.errors import GgufError
from ingot.gguf import GgmlType, GgufLoader, ValueType

F32_ROW = np.arange(8, dtype=np.float32).tobytes()
HUGE = 2**64 - 1


def small(version: int = 3) -> Craft:
    """A little of everything."""
    return (
        Craft(version=version)
        .key("general.architecture", ValueType.STRING, b"llama")
        .key("flag", ValueType.BOOL, 1)
        .key("count", ValueType.UINT32, 7)
        .array("tokens", ValueType.STRING, [b"a", b"", b"\xff\xfe", b"long enough"])
        .array("scores", ValueType.FLOAT32, [0.5, -1.0])
        .array("flags", ValueType.BOOL, [0, 1, 1])
        .tensor("a", [4, 2], GgmlType.F32, F32_ROW)
        .tensor("b", [32, 2], GgmlType.Q8_0, bytes(68))
    )


def open_bytes(folder: Path, data: bytes) -> GgufLoader:
    path = folder / "file.gguf"
    path.write_bytes(data)
    return GgufLoader(path)


def rejection(folder: Path, data: bytes) -> GgufError:
    with pytest.raises(GgufError) as caught:
        open_bytes(folder, data)
    assert caught.value.path == str(folder / "file.gguf")
    return caught.value


@pytest.mark.parametrize("version", [2, 3])
def test_versions(tmp_path: Path, version: int) -> None:
    loader = open_bytes(tmp_path, small(version).bytes())
    assert loader.version == version
    assert loader.metadata["general.architecture"] == "llama"
    assert loader.tensors["a"].data.tobytes() == F32_ROW
    assert loader.tensors["b"].shape == (2, 32)


@dataclass(frozen=True)
class Bad:
    """How a file is spoiled, and where and why it must be rejected."""

    what: str
    spoil: Callable[[Craft], Craft]
    field: str
    at: str  # label of the field where the error is
    reason: str
    shift: int = 0  # from the field's first byte


def put(label: str, data: bytes) -> Callable[[Craft], Craft]:
    return lambda craft: craft.replace(label, data)


def tensor(dimensions: list[int], kind: int = GgmlType.F32) -> Callable[[Craft], Craft]:
    return lambda craft: craft.tensor("t", dimensions, kind, b"")


def key(name: str, kind: ValueType, value: object) -> Callable[[Craft], Craft]:
    return lambda craft: craft.key(name, kind, value)


# The scan reports a value at its own first byte, a text at its length prefix.
BAD = [
    Bad("magic", put("magic", b"GGML"), "magic", "magic", "not a GGUF file"),
    Bad("version 1", put("version", u32(1)), "version", "version", "version 1 is not supported"),
    Bad("version 4", put("version", u32(4)), "version", "version", "version 4 is not supported"),
    Bad("version 0", put("version", u32(0)), "version", "version", "version 0 is not supported"),
    Bad("big-endian", put("version", u32(3 << 24)), "version", "version", "big-endian"),
    Bad("tensors", put("tensor_count", u64(HUGE)), "tensor_count", "tensor_count", "cannot fit"),
    Bad("keys", put("metadata_kv_count", u64(2**40)), "metadata_kv_count", "metadata_kv_count",
        "cannot fit"),
    Bad("key length", put("flag.length", u64(HUGE)), "key", "flag.length",
        "length of 18446744073709551615"),
    Bad("key length wraps", put("flag.length", u64(2**64 - 40)), "key", "flag.length", "length of"),
    Bad("empty key", lambda c: c.replace("flag.length", u64(0)).replace("flag.key", b""), "key",
        "flag.length", "empty"),
    Bad("key not UTF-8", put("flag.key", b"fl\xffg"), "key", "flag.key", "UTF-8", 2),
    Bad("key overlong", put("flag.key", b"f\xc0\xafg"), "key", "flag.key", "UTF-8", 1),
    Bad("key surrogate", put("flag.key", b"\xed\xa0\x80g"), "key", "flag.key", "UTF-8"),
    Bad("key cut", put("flag.key", b"flg\xc3"), "key", "flag.key", "UTF-8", 3),
    Bad("key beyond Unicode", put("flag.key", b"\xf4\x90\x80\x80"), "key", "flag.key", "UTF-8"),
    Bad("duplicate key", put("flags.key", b"count"), "key", "flags.key", "'count' appears twice"),
    Bad("value type", put("flag.value_type", u32(13)), "value_type", "flag.value_type",
        "'flag': unknown value type 13"),
    Bad("bool", put("flag.value", b"\x02"), "value", "flag.value", "'flag': a bool is 0 or 1"),
    Bad("bool in array", put("flags.value", b"\0\x01\xff"), "array", "flags.value",
        "not 255", 2),
    Bad("string length", put("general.architecture.value", u64(HUGE)), "value",
        "general.architecture.value", "length of"),
    Bad("nested array", put("scores.array_type", u32(9)), "array_type", "scores.array_type",
        "arrays of arrays"),
    Bad("array type", put("scores.array_type", u32(99)), "array_type", "scores.array_type",
        "unknown value type 99"),
    Bad("array length", put("scores.array_length", u64(2**62 + 1)), "array_length",
        "scores.array_length", "cannot fit"),
    Bad("array a little too long", put("scores.array_length", u64(120)), "array_length",
        "scores.array_length", "120 cannot fit"),
    Bad("strings length", put("tokens.array_length", u64(2**61)), "array_length",
        "tokens.array_length", "cannot fit"),
    Bad("string in array", put("tokens.value", u64(1) + b"a" + u64(HUGE)), "array",
        "tokens.value", "length of", 9),
    Bad("empty name", lambda c: c.replace("a.length", u64(0)).replace("a.name", b""),
        "tensor_name", "a.length", "empty"),
    Bad("name not UTF-8", put("a.name", b"\x80"), "tensor_name", "a.name", "UTF-8"),
    Bad("duplicate name", put("b.name", b"a"), "tensor_name", "b.name", "'a' appears twice"),
    Bad("no dimensions", tensor([]), "n_dimensions", "t.n_dimensions", "0 dimensions"),
    Bad("five dimensions", tensor([1] * 5), "n_dimensions", "t.n_dimensions", "5 dimensions"),
    Bad("zero dimension", tensor([4, 0]), "dimensions", "t.dimensions", "is zero", 8),
    Bad("elements overflow", tensor([2**32, 2**32]), "dimensions", "t.dimensions",
        "elements overflows", 8),
    Bad("bytes overflow", tensor([2**62, 2], GgmlType.F64), "dimensions", "t.dimensions",
        "bytes overflows"),
    Bad("tensor type", put("a.type", u32(4)), "tensor_type", "a.type", "'a': unknown type 4"),
    Bad("part of a block", tensor([48], GgmlType.Q4_0), "dimensions", "t.dimensions",
        "rows of 48 are not whole blocks of 32 \\(Q4_0\\)"),
    Bad("offset unaligned", put("b.offset", u64(33)), "tensor_offset", "b.offset",
        "33 is not a multiple of the alignment, 32"),
    Bad("offset out of range", put("b.offset", u64(64)), "tensor_offset", "b.offset",
        "past the end"),
    Bad("offset overflows", put("b.offset", u64(2**64 - 32)), "tensor_offset", "b.offset",
        "past the end"),
    Bad("end overflows", lambda c: tensor([2**40])(c).replace("t.offset", u64(2**64 - 2**42)),
        "tensor_offset", "t.offset", "past the end"),
    Bad("overlap", put("b.offset", u64(0)), "tensor_offset", "b.offset", "overlaps that of 'a'"),
    Bad("too large", tensor([2**40]), "tensor_offset", "t.offset", "past the end"),
    Bad("alignment 0", key("general.alignment", ValueType.UINT32, 0), "general.alignment",
        "general.alignment.value", "0 is not a power of two"),
    Bad("alignment 48", key("general.alignment", ValueType.UINT32, 48), "general.alignment",
        "general.alignment.value", "48 is not a power of two"),
    Bad("alignment type", key("general.alignment", ValueType.UINT64, 32), "general.alignment",
        "general.alignment.key", "must be a uint32"),
    Bad("alignment moves data", key("general.alignment", ValueType.UINT32, 2**31),
        "tensor_offset", "a.offset", "past the end"),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.what)
def test_bad_file(tmp_path: Path, bad: Bad) -> None:
    craft = bad.spoil(small())
    error = rejection(tmp_path, craft.bytes())
    assert error.field == bad.field
    assert error.offset == craft.offset(bad.at) + bad.shift
    assert re.search(bad.reason, error.reason)


def first_invalid(data: bytes) -> int | None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def test_utf8_as_strict_as_python() -> None:
    edges = (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF)
    sequences = [bytes((lead, *rest)) for lead in range(256) for rest in product(edges, repeat=2)]
    sequences += [bytes((lead, two, 0x80, 0xBF)) for lead in range(0xE0, 256) for two in edges]
    for sequence in sequences:
        craft = Craft().key("key", ValueType.BOOL, 1).replace("key.key", b"k" + sequence)
        craft.replace("key.length", u64(1 + len(sequence)))
        data = np.frombuffer(craft.bytes(), np.uint8)
        invalid = first_invalid(b"k" + sequence)
        if invalid is None:
            scanned = _native.scan_gguf(data, data.size, "file")
            assert scanned is not None
            assert scanned[4][0][0] == (b"k" + sequence).decode()
            continue
        with pytest.raises(GgufError) as caught:
            _native.scan_gguf(data, data.size, "file")
        assert caught.value.offset == craft.offset("key.key") + invalid, sequence


def test_truncated_anywhere(tmp_path: Path) -> None:
    data = small().bytes()
    for size in range(len(data)):
        error = rejection(tmp_path, data[:size])
        assert error.offset is not None
        assert error.offset <= size
    open_bytes(tmp_path, data)


def test_big_endian_file_of_another_writer(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(GgufError, match="version at byte 4: the file is big-endian"):
        GgufLoader(path)


def test_gaps_and_any_order(tmp_path: Path) -> None:
    craft = Craft().tensor("a", [8], GgmlType.F32, F32_ROW).tensor("b", [8], 0, F32_ROW, gap=3)
    first, second = craft.tensors[:6], craft.tensors[6:]
    craft.tensors = second + first
    loader = open_bytes(tmp_path, craft.bytes())
    assert list(loader.tensors) == ["b", "a"]
    assert loader.tensors["b"].offset - loader.tensors["a"].offset == 4 * 32
    assert loader.tensors["b"].data.tobytes() == F32_ROW


@pytest.mark.parametrize("alignment", [1, 8, 32, 64, 4096])
def test_alignment(tmp_path: Path, alignment: int) -> None:
    craft = Craft(alignment=alignment).key("general.alignment", ValueType.UINT32, alignment)
    craft.tensor("a", [3], GgmlType.I8, b"abc").tensor("b", [2], GgmlType.I8, b"de")
    loader = open_bytes(tmp_path, craft.bytes())
    assert loader.alignment == alignment
    assert loader.tensors["a"].offset % alignment == 0
    assert loader.tensors["b"].data.tobytes() == b"de"


def test_vocabulary_only(tmp_path: Path) -> None:
    craft = Craft().array("tokenizer.ggml.tokens", ValueType.STRING, [b"a", b"b"])
    assert len(craft.bytes()) % 32 != 0  # nothing follows the header, not even padding
    loader = open_bytes(tmp_path, craft.bytes())
    assert not loader.tensors
    assert list(loader.metadata.strings("tokenizer.ggml.tokens")) == ["a", "b"]


def test_nothing_at_all(tmp_path: Path) -> None:
    loader = open_bytes(tmp_path, Craft().bytes())
    assert (len(loader.metadata), len(loader.tensors)) == (0, 0)


def test_messages_stay_on_one_line(tmp_path: Path) -> None:
    craft = Craft().key("a\nb" * 1000 + "é" * 1000, ValueType.BOOL, 3)
    error = rejection(tmp_path, craft.bytes())
    assert "a?ba?b" in error.reason
    assert "\n" not in str(error).replace(str(tmp_path), "")
    assert len(error.reason) < 200


def test_many_names_are_checked_quickly(tmp_path: Path) -> None:
    """A quadratic search for duplicates would take minutes."""
    craft = Craft()
    for number in range(60_000):
        craft.key(f"key.{number:06d}", ValueType.UINT8, 0)
    assert len(open_bytes(tmp_path, craft.bytes()).metadata) == 60_000
    craft.key("key.000000", ValueType.UINT8, 0)
    error = rejection(tmp_path, craft.bytes())
    assert (error.field, error.reason) == ("key", "'key.000000' appears twice")
