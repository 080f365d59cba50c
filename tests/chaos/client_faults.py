"""Faults of clients: connections that break, stall or flood, and requests that are bombs.

Other clients must not notice them, apart from the flood, which may use every connection up.
"""

import http.client
import json
import resource
import socket
from contextlib import suppress

from chaos.faults import Fault
from chaos.load import Kind, reset
from chaos.served import PATIENCE

_STREAM = json.dumps({"prompt": "a", "n_predict": 900, "ignore_eos": True, "stream": True})
_KEPT_FREE = 200  # descriptors of this program, for its own clients
_GRAMMAR_SECONDS = 3  # after which the client of a bomb goes away


class _Connections(Fault):
    """Connections that are held for a while and then reset."""

    buffered = 1 << 16  # bytes that this side takes without reading

    def open(self, sent: bytes) -> socket.socket:
        """A connection on which something was sent."""
        made = socket.socket()
        self._opened.append(made)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.buffered)
        made.settimeout(PATIENCE)
        made.connect(("127.0.0.1", self.served.port))
        made.sendall(sent)
        return made

    @property
    def _opened(self) -> list[socket.socket]:
        return self.__dict__.setdefault("_held", [])

    def heal(self) -> None:
        """Reset them."""
        for connection in self._opened:
            reset(connection)


def _head(path: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


class DroppedStreams(_Connections):
    """Clients reset their connections in the middle of a stream."""

    def apply(self) -> None:
        """Begin streams."""
        for _ in range(6):
            stream = self.open(_head("/completion", len(_STREAM)) + _STREAM.encode())
            stream.recv(self.dice.randrange(1, 2000))


class SlowReaders(_Connections):
    """Clients ask for streams and do not read them."""

    buffered = 2048

    def apply(self) -> None:
        """Begin streams."""
        for _ in range(4):
            self.open(_head("/completion", len(_STREAM)) + _STREAM.encode())


class UnfinishedRequests(_Connections):
    """Clients send half of a head or half of a body, and wait."""

    def apply(self) -> None:
        """Begin requests."""
        whole = _head("/completion", len(_STREAM)) + _STREAM.encode()
        for _ in range(60):
            self.open(whole[: self.dice.randrange(len(whole) - 1)])


class ConnectionFlood(_Connections):
    """As many connections as this program may open."""

    excused = frozenset({Kind.REFUSED})

    def apply(self) -> None:
        """Open them."""
        most = min(2000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _KEPT_FREE)
        with suppress(OSError):
            for _ in range(most):
                self.open(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")


class HugeHeaders(_Connections):
    """Megabytes of headers: they are refused, at the latest by the end of the connection."""

    def apply(self) -> None:
        """Send them."""
        line = b"X-Filler: " + b"a" * 8000 + b"\r\n"
        connection = self.open(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n")
        answer = b""
        with suppress(ConnectionError):
            for _ in range(1000):
                connection.sendall(line)
            connection.sendall(b"\r\n")
            answer = connection.recv(100)
        if answer.startswith(b"HTTP/1.1 2"):
            self.violations.append(f"8 MB of headers were taken: {answer!r}")


class BodyBombs(Fault):
    """Bodies of a megabyte whose every element is wrong: each gets a 4xx, and others continue."""

    def apply(self) -> None:
        """Send them."""
        strings, numbers = ["a"] * 250_000, [-1] * 330_000
        message = {"role": "user", "content": [{"type": "text"}] * 60_000}
        nested = json.loads("[" * 500 + "]" * 500)
        for path, body in (
            ("/completion", {"prompt": numbers}),
            ("/v1/completions", {"prompt": strings}),
            ("/v1/completions", {"prompt": nested}),
            ("/v1/embeddings", {"input": strings}),
            ("/detokenize", {"tokens": numbers}),
            ("/v1/chat/completions", {"messages": [message]}),
            ("/v1/chat/completions", {"messages": [], "tools": [1] * 330_000}),
            ("/v1/messages", {"messages": [message], "max_tokens": 1}),
            ("/completion", {"prompt": "a", "dry_sequence_breakers": numbers}),
            ("/completion", {"prompt": "a", "samplers": numbers}),
        ):
            try:
                status, answer = self.served.ask("POST", path, body)
            except (OSError, http.client.HTTPException) as error:
                self.violations.append(f"a bomb for {path} got no answer: {error!r}")
                continue
            if not 400 <= status < 500:
                self.violations.append(f"a bomb for {path} got {status}: {answer[:200]}")


class GrammarBombs(Fault):
    """Grammars that take minutes to compile, of clients that go away: others do not wait."""

    def apply(self) -> None:
        """Send them."""
        patterns = [{"type": "string", "pattern": f"(a|b)*a(a|b){{{i}}}c"} for i in range(1, 40)]
        gbnf = "root ::= " + " | ".join(f'"{number}"' for number in range(60_000))
        for body in ({"json_schema": {"allOf": patterns}}, {"grammar": gbnf}):
            asked = {"prompt": "a", "n_predict": 2, **body}
            with suppress(TimeoutError):
                status, answer = self.served.ask("POST", "/completion", asked, _GRAMMAR_SECONDS)
                if status not in (200, 400, 413, 429, 503):
                    self.violations.append(f"a grammar got {status}: {answer[:200]}")
