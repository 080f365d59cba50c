"""Bodies of JSON that any client can read, whatever was said in the request, and however long."""

from collections.abc import Iterable, Iterator
from itertools import islice

from starlette.responses import JSONResponse, StreamingResponse

from ingot.server.sse import dumps


class JsonAnswer(JSONResponse):
    """An answer in ASCII: half a surrogate pair, which a text may hold, is escaped."""

    def render(self, content: object) -> bytes:
        """The bytes of the body."""
        return dumps(content).encode()


class LongAnswer(StreamingResponse):
    """An answer that is made and sent in pieces, each in a thread: nobody waits for all of it."""

    media_type = "application/json"

    def __init__(self, pieces: Iterator[str]) -> None:
        super().__init__(piece.encode() for piece in pieces)


def list_pieces(entries: Iterable[str], together: int) -> Iterator[str]:
    """A list of entries that are JSON already, so many of them in a piece."""
    left = iter(entries)
    before = "["
    while some := list(islice(left, together)):
        yield before + ",".join(some)
        before = ","
    yield "]" if before == "," else "[]"
