"""SavedText: the KV cache of a text in a file, so that prefill need not run again.

    8 bytes  magic
    4 bytes  version, 4 bytes length of the header (little endian, as all of it)
    header   JSON: the model, the layout of the cache, how many tokens and runs
    tokens   32 bits each
    blocks   group after group, in each the runs that are kept, in order
    digest   BLAKE2b of everything before

A file is written whole or not at all (`ingot.files`). Anything wrong with one is a
`SavedCacheError` before its content is used. Files are not trusted: the header is checked before
the rest is read, and the digest finds accidental damage only.
"""

import json
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, BinaryIO

import numpy as np

from ingot.arrays import Bytes, Ints
from ingot.errors import SavedCacheError
from ingot.files import open_regular, write_file
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout

_MAGIC = b"INGOTKV\0"
_VERSION = 2
_HEAD = struct.Struct("<8sII")
_DIGEST = 32
_MOST_HEADER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Header:
    """The model, layout and size of a saved cache."""

    model: str  # its fingerprint
    kv_type: str
    block_tokens: int
    windows: list[int]  # of each group
    block_bytes: list[int]
    first: list[int]  # the first run that each group keeps
    tokens: int
    prompted: int  # tokens that were read as a prompt
    runs: int


@dataclass(frozen=True, slots=True)
class SavedText:
    """A text's tokens and its blocks: [groups][runs from first on][bytes]."""

    header: Header
    tokens: Ints
    blocks: Sequence[Bytes]

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return sum(map(len, self._parts())) + _DIGEST

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file; an existing one is replaced at the end.

        Only its owner can read it, because it contains the text.
        """
        write_file(path, self._parts_and_digest(), mode=0o600)

    def _parts(self) -> list[bytes | memoryview]:
        head = json.dumps(asdict(self.header)).encode()
        return [
            _HEAD.pack(_MAGIC, _VERSION, len(head)),
            head,
            self.tokens.astype("<i4").tobytes(),
            *(block.reshape(-1).data for block in self.blocks),
        ]

    def _parts_and_digest(self) -> Iterator[bytes | memoryview]:
        digest = blake2b(digest_size=_DIGEST)
        for part in self._parts():
            digest.update(part)
            yield part
        yield digest.digest()


def read_saved(
    path: str | os.PathLike[str], layout: KvLayout, model: str, *, most_tokens: int
) -> SavedText:
    """Read a file and check it against the model that will use it.

    If it has more than `most_tokens` tokens, or a length that does not match its header, only the
    header is read: a file must not decide how much memory is taken.
    """
    try:
        with open_regular(path) as file:
            header = _read_header(path, file)
            _check_model(path, header, layout, model)
            if header.tokens > most_tokens:
                raise SavedCacheError(
                    f"{path} has {header.tokens} tokens, and the context has {most_tokens}; "
                    "open the model with a larger context"
                )
            start = file.tell()
            sizes = [
                (header.runs - first) * size
                for first, size in zip(header.first, header.block_bytes, strict=True)
            ]
            length = start + 4 * header.tokens + sum(sizes) + _DIGEST
            if os.fstat(file.fileno()).st_size != length:
                raise SavedCacheError(f"{path} is damaged: its length does not match its header")
            file.seek(0)
            content = file.read(length)
    except OSError as error:
        raise SavedCacheError(f"{path} cannot be read: {error.strerror or error}") from error
    body = memoryview(content)[: length - _DIGEST]
    if blake2b(body, digest_size=_DIGEST).digest() != content[length - _DIGEST :]:
        raise SavedCacheError(f"{path} is damaged: its digest does not match its content")
    tokens = np.frombuffer(content, "<i4", header.tokens, start).astype(np.int32)
    ends = start + 4 * header.tokens + np.cumsum([0, *sizes])
    blocks = [
        np.frombuffer(content, np.uint8, size, int(end)).reshape(-1, each)
        for end, size, each in zip(ends, sizes, header.block_bytes, strict=False)
    ]
    return SavedText(header, tokens, blocks)


def _read_header(path: str | os.PathLike[str], file: BinaryIO) -> Header:
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or not head.startswith(_MAGIC):
        raise SavedCacheError(f"{path} is not a saved cache")
    _, version, length = _HEAD.unpack(head)
    if version != _VERSION:
        raise SavedCacheError(
            f"{path} has version {version} and this Ingot reads version {_VERSION}; save it again"
        )
    try:
        if length > _MOST_HEADER_BYTES:
            raise ValueError("the header is too long")
        fields: Any = json.loads(file.read(length))
        header = Header(**fields)
        _check_types(header)
    except (ValueError, TypeError, RecursionError) as error:
        raise SavedCacheError(f"{path} is damaged: its header cannot be read") from error
    return header


def _check_types(header: Header) -> None:
    numbers = (header.block_tokens, header.tokens, header.prompted, header.runs)
    lists = (header.windows, header.block_bytes, header.first)
    if not all(type(name) is str for name in (header.model, header.kv_type)):
        raise ValueError("a name is not text")
    if not all(type(values) is list for values in lists):
        raise ValueError("a list is something else")
    whole = all(type(n) is int and n >= 0 for numbers in (numbers, *lists) for n in numbers)
    equal = len({len(values) for values in lists}) == 1
    if not whole or not equal:
        raise ValueError("a number is wrong")
    if header.runs * BLOCK_TOKENS > header.tokens or header.prompted > header.tokens:
        raise ValueError("counts do not go together")


def _check_model(
    path: str | os.PathLike[str], header: Header, layout: KvLayout, model: str
) -> None:
    if header.model != model:
        raise SavedCacheError(f"{path} was saved with another model")
    kv_type = layout.type.value
    if header.kv_type != kv_type:
        raise SavedCacheError(
            f"{path} was saved with kv_type={header.kv_type!r}, and the model has {kv_type!r}"
        )
    sizes = [group.block_bytes for group in layout.groups]
    windows = [group.window for group in layout.groups]
    if (header.block_tokens, header.block_bytes, header.windows) != (BLOCK_TOKENS, sizes, windows):
        raise SavedCacheError(f"{path} was saved with another cache layout; save it again")
    length = header.runs * BLOCK_TOKENS
    oldest = [group.oldest_run(length) for group in layout.groups]
    if any(first > last for first, last in zip(header.first, oldest, strict=True)):
        raise SavedCacheError(f"{path} is damaged: it lacks blocks that its text needs")
