"""JSON responses: whole ones, and long ones that are made and sent in pieces.

A long response is a tree of dictionaries in which an iterator stands for a list. Its pieces are
made in threads, so the event loop does not wait for all of them, and memory holds a few at a time.
"""

import json
from collections.abc import Iterator, Mapping

from starlette.responses import JSONResponse, StreamingResponse

from ingot.server.threads import iterate_in_threads

_PIECE = 32 << 10  # characters: well under a millisecond to write
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class RawJson(str):
    """A value that is JSON text already."""

    __slots__ = ()


def dumps(value: object) -> str:
    """Compact JSON in ASCII: unpaired surrogates, which UTF-8 cannot have, are escaped."""
    return _encode(value)


class JsonResponse(JSONResponse):
    """A response in ASCII, which any client can read."""

    def render(self, content: object) -> bytes:
        """The bytes of the body."""
        return dumps(content).encode()


class LongJsonResponse(StreamingResponse):
    """A response that is made and sent in pieces."""

    media_type = "application/json"

    def __init__(self, value: object) -> None:
        pieces = json_pieces(value)
        super().__init__(iterate_in_threads(piece.encode() for piece in pieces))


def json_pieces(value: object) -> Iterator[str]:
    """A value's JSON in pieces of about `_PIECE` characters; iterators become lists."""
    parts: list[str] = []
    size = 0
    for part in _parts(value):
        parts.append(part)
        size += len(part)
        if size >= _PIECE:
            yield "".join(parts)
            parts.clear()
            size = 0
    yield "".join(parts)


def _parts(value: object) -> Iterator[str]:
    if isinstance(value, RawJson):
        yield value
    elif isinstance(value, Iterator):
        before = "["
        for item in value:
            yield before
            yield from _parts(item)
            before = ","
        yield "]" if before == "," else "[]"
    elif isinstance(value, Mapping) and _is_long(value):
        before = "{"
        for name, item in value.items():
            yield f"{before}{_encode(name)}:"
            yield from _parts(item)
            before = ","
        yield "}"
    else:
        yield _encode(value)


def _is_long(value: Mapping[object, object]) -> bool:
    """Whether an iterator is somewhere in the dictionary."""
    return any(
        isinstance(item, Iterator) or (isinstance(item, Mapping) and _is_long(item))
        for item in value.values()
    )
