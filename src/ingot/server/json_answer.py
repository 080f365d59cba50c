"""JsonAnswer: a body of JSON that any client can read, whatever was said in the request."""

from starlette.responses import JSONResponse

from ingot.server.sse import dumps


class JsonAnswer(JSONResponse):
    """An answer in ASCII: half a surrogate pair, which a request may have brought, is escaped."""

    def render(self, content: object) -> bytes:
        """The bytes of the body."""
        return dumps(content).encode()
