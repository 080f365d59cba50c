"""ConnectionLimits: what one connection may hold, and for how long. Every default is here.

Only tests and embedding programs change them; `ingot serve` has an option for the number of
connections alone (`ServerOptions.max_connections`).
"""

import sys
from dataclasses import dataclass

from ingot.errors import ConfigError

_RESERVED = 128  # descriptors for model files, saved caches, logs and the event loop
_FEWEST = 8  # connections, or there is no use in serving


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of a connection; times are in seconds."""

    head_bytes: int = 64 << 10  # request line and headers together; also trailers
    headers: int = 128
    handshake_time: float = 10.0  # of TLS
    head_time: float = 20.0  # from the opening, or the first byte of the next request
    body_time: float = 20.0  # in which a body must end, or bring the next `body_bytes`
    body_bytes: int = 320 << 10  # so a body comes with 16 KiB/s at least
    keep_alive: float = 75.0  # between an answer and the next request
    stalled_time: float = 60.0  # in which a client must take some of its answer
    linger_time: float = 2.0  # that a client has to read why it was refused

    @property
    def tick(self) -> float:
        """How often connections are looked at."""
        return min(1.0, min(self.head_time, self.stalled_time, self.linger_time) / 4)


def room_for(connections: int, spare: int) -> int:
    """How many of these connections the process can hold, and `spare` more, with descriptors left.

    Raises the process's soft limit as far as that needs and the hard limit allows.
    """
    if sys.platform == "win32":
        return connections
    import resource  # noqa: PLC0415 (there is none on Windows)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + spare + _RESERVED
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if limit > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    room = max(limit, soft) - spare - _RESERVED
    if room < _FEWEST:
        raise ConfigError(
            f"the process may open {limit} files, too few to serve: raise the limit (ulimit -n) "
            f"to {spare + _RESERVED + _FEWEST} or more"
        )
    return min(room, connections)
