"""Saved caches are strangers' files: whatever they say, they are read right or are an error."""

import json
import os
import struct
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import LLM
from ingot.errors import SavedCacheError
from ingot.graph.kv_layout import BLOCK_TOKENS, KvGroup, KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache.saved import Header, SavedText, read_saved
from tiny_llama import write_tiny_llama

LAYOUT = KvLayout(KvType.F16, (KvGroup(0, 96), KvGroup(40, 32)), ())
RUNS, TOKENS = 3, 3 * BLOCK_TOKENS
HEADER = Header(
    model="model",
    kv_type=KvType.F16.value,
    block_tokens=BLOCK_TOKENS,
    windows=[0, 40],
    block_bytes=[96, 32],
    first=[0, 1],
    tokens=TOKENS,
    prompted=50,
    runs=RUNS,
)
TEXT = SavedText(
    HEADER,
    np.arange(TOKENS, dtype=np.int32),
    [np.full((3, 96), 7, np.uint8), np.full((2, 32), 8, np.uint8)],
)
BODY = TEXT.tokens.tobytes() + b"".join(block.tobytes() for block in TEXT.blocks)


def read(path: Path) -> SavedText:
    return read_saved(path, LAYOUT, "model", most_tokens=TOKENS)


def sealed(header: bytes, body: bytes = BODY) -> bytes:
    """A file with the right digest: only its author is a stranger."""
    made = b"INGOTKV\0" + struct.pack("<II", 2, len(header)) + header + body
    return made + blake2b(made, digest_size=32).digest()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    TEXT.write(tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    assert len(content) == TEXT.nbytes
    assert content == sealed(json.dumps(asdict(HEADER)).encode())
    found = read(tmp_path / "file")
    assert found.header == HEADER
    assert np.array_equal(found.tokens, TEXT.tokens)
    assert all(map(np.array_equal, found.blocks, TEXT.blocks))
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(0, 100)
    | st.sampled_from([2**31, 2**63, 2**64, 10**400, -1, TOKENS, RUNS, float("nan"), 1e308])
    | st.floats()
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@settings(max_examples=400)
@given(changes=st.dictionaries(st.sampled_from(list(asdict(HEADER))), JSON, max_size=3))
def test_any_header_is_read_right_or_refused(
    changes: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-header"
    path.write_bytes(sealed(json.dumps({**asdict(HEADER), **changes}).encode()))
    try:
        found = read(path)
    except SavedCacheError:
        return
    assert found.header == replace(HEADER, prompted=found.header.prompted)
    assert 0 <= found.header.prompted <= TOKENS


@settings(max_examples=400)
@given(
    at=st.integers(0, len(BODY) + 250),
    piece=st.binary(max_size=20) | st.sampled_from([b"[" * 50_000, b"9" * 5000, b"\0" * 70_000]),
    cut=st.integers(0, 40),
)
def test_any_damage_is_found(
    at: int, piece: bytes, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-damage"
    content = sealed(json.dumps(asdict(HEADER)).encode())
    damaged = content[:at] + piece + content[at + cut :]
    path.write_bytes(damaged)
    if damaged == content:
        read(path)
    else:
        with pytest.raises(SavedCacheError):
            read(path)


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b"null",
        b"[]",
        b"",
        b"\xff",
        json.dumps({**asdict(HEADER), "more": 1}).encode(),
        json.dumps({**asdict(HEADER), "first": [1, 1]}).encode(),  # a run that is needed
        json.dumps({**asdict(HEADER), "first": [0, 4]}).encode(),
        json.dumps({**asdict(HEADER), "windows": {"0": 40}}).encode(),
    ],
)
def test_bad_headers(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "file").write_bytes(sealed(header))
    with pytest.raises(SavedCacheError):
        read(tmp_path / "file")


def test_only_as_much_is_read_as_the_model_has_room_for(tmp_path: Path) -> None:
    """A file of a terabyte that is as long as its header says, and none of it on the disk."""
    tokens = (1 << 40) // 4
    header = json.dumps(asdict(replace(HEADER, tokens=tokens))).encode()
    path = tmp_path / "file"
    path.write_bytes(sealed(header, b"")[:-32])
    os.truncate(path, path.stat().st_size + 4 * tokens + 3 * 96 + 2 * 32 + 32)
    with pytest.raises(SavedCacheError, match=f"has {tokens} tokens, and the context has {TOKENS}"):
        read(path)
    path.write_bytes(sealed(json.dumps(asdict(HEADER)).encode()))
    os.truncate(path, 1 << 40)
    with pytest.raises(SavedCacheError, match="length does not match"):
        read(path)


def test_what_is_no_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(SavedCacheError, match="cannot be read: it is not a regular file"):
            read(path)


def test_tokens_of_another_vocabulary_are_refused(tmp_path: Path) -> None:
    with LLM(write_tiny_llama(tmp_path / "tiny.gguf"), threads=1) as llm:
        llm.save(list(range(64)), tmp_path / "file")
        content = bytearray((tmp_path / "file").read_bytes())
        (length,) = struct.unpack_from("<I", content, 12)
        for token in (-1, 1 << 30):
            struct.pack_into("<i", content, 16 + length, token)
            content[-32:] = blake2b(content[:-32], digest_size=32).digest()
            (tmp_path / "file").write_bytes(content)
            with pytest.raises(SavedCacheError, match=f"token id {token} is not in"):
                llm.restore(tmp_path / "file")
