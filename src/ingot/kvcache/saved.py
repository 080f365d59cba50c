"""SavedText: the cache of a text in a file, so that it need not be read again.

    8 bytes  magic
    4 bytes  version, 4 bytes length of the header (little endian, as all of it)
    header   JSON: the model, the layout of the cache, how many tokens and runs
    tokens   32 bits each
    blocks   group after group, in each the runs that are kept, in order
    digest   BLAKE2b of everything before

A file is written whole or not at all. Whatever is wrong with one is a `SavedCacheError`, found
before anything of it is used.
"""

import json
import os
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.errors import SavedCacheError
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout

Ints = NDArray[np.int32]
Bytes = NDArray[np.uint8]

_MAGIC = b"INGOTKV\0"
_VERSION = 1
_HEAD = struct.Struct("<8sII")
_DIGEST = 32


@dataclass(frozen=True, slots=True)
class Header:
    """What a saved cache is of."""

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

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file; one that is there already is replaced at the end."""
        target = Path(path)
        head = json.dumps(asdict(self.header)).encode()
        digest = blake2b(digest_size=_DIGEST)
        try:
            with NamedTemporaryFile(dir=target.parent, prefix=target.name, delete=False) as file:
                try:
                    for part in (
                        _HEAD.pack(_MAGIC, _VERSION, len(head)),
                        head,
                        self.tokens.astype("<i4").tobytes(),
                        *(block.tobytes() for block in self.blocks),
                    ):
                        file.write(part)
                        digest.update(part)
                    file.write(digest.digest())
                    file.close()
                    Path(file.name).replace(target)
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise SavedCacheError(f"{target} cannot be written: {error.strerror}") from error


def read_saved(path: str | os.PathLike[str], layout: KvLayout, model: str) -> SavedText:
    """Read a file and check it against the model it is to be used with."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise SavedCacheError(f"{path} cannot be read: {error.strerror}") from error
    header, start = _header(path, content)
    _check_model(path, header, layout, model)
    kept = [header.runs - first for first in header.first]
    sizes = [runs * size for runs, size in zip(kept, header.block_bytes, strict=True)]
    if len(content) != start + 4 * header.tokens + sum(sizes) + _DIGEST:
        raise SavedCacheError(f"{path} is not as long as its header says: it is damaged")
    body = memoryview(content)[: len(content) - _DIGEST]
    if blake2b(body, digest_size=_DIGEST).digest() != content[len(body) :]:
        raise SavedCacheError(f"{path} is damaged: its digest is not that of its content")
    tokens = np.frombuffer(content, "<i4", header.tokens, start).astype(np.int32)
    ends = start + 4 * header.tokens + np.cumsum([0, *sizes])
    blocks = [
        np.frombuffer(content, np.uint8, size, int(end)).reshape(-1, each)
        for end, size, each in zip(ends, sizes, header.block_bytes, strict=False)
    ]
    return SavedText(header, tokens, blocks)


def _header(path: str | os.PathLike[str], content: bytes) -> tuple[Header, int]:
    if len(content) < _HEAD.size or not content.startswith(_MAGIC):
        raise SavedCacheError(f"{path} is not a saved cache")
    _, version, length = _HEAD.unpack_from(content)
    if version != _VERSION:
        raise SavedCacheError(
            f"{path} has version {version} and this Ingot reads version {_VERSION}; save it again"
        )
    end = _HEAD.size + length
    try:
        fields: Any = json.loads(content[_HEAD.size : end])
        header = Header(**fields)
        _check_types(header)
    except (ValueError, TypeError) as error:
        raise SavedCacheError(f"{path} is damaged: its header cannot be read") from error
    return header, end


def _check_types(header: Header) -> None:
    numbers = (header.block_tokens, header.tokens, header.prompted, header.runs)
    lists = (header.windows, header.block_bytes, header.first)
    whole = all(type(n) is int and n >= 0 for numbers in (numbers, *lists) for n in numbers)
    equal = len({len(values) for values in lists}) == 1
    if not whole or not equal or any(first > header.runs for first in header.first):
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
            f"{path} was saved with kv_type={header.kv_type!r}, and the model is with {kv_type!r}"
        )
    sizes = [group.block_bytes for group in layout.groups]
    windows = [group.window for group in layout.groups]
    if (header.block_tokens, header.block_bytes, header.windows) != (BLOCK_TOKENS, sizes, windows):
        raise SavedCacheError(f"{path} was saved with another layout of the cache; save it again")
