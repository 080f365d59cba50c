"""ConnectionLimits: what one connection may hold, and for how long, with all defaults.

Programs and tests may change them; `ingot serve` has an option only for the number of connections
(`ServerOptions.max_connections`).
"""

from dataclasses import dataclass

from ingot.errors import ConfigError
from ingot.machine import allow_open_files

_RESERVED = 128  # descriptors for model files, saved caches, logs and the event loop
_FEWEST = 8  # connections with which the server still starts


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of a connection; times are in seconds."""

    head_bytes: int = 64 << 10  # request line and headers together; also trailers
    headers: int = 128
    handshake_time: float = 10.0  # of TLS
    head_time: float = 20.0  # from the opening, or from the first byte of the next request
    body_time: float = 20.0  # in which a body must end, or `body_bytes` more of it must arrive
    body_bytes: int = 320 << 10  # that is 16 KiB/s at least
    keep_alive: float = 75.0  # between a response and the next request
    stalled_time: float = 60.0  # in which a client must read some of its response
    linger_time: float = 2.0  # for a refused client to read the error

    @property
    def tick(self) -> float:
        """Seconds between two checks of all connections."""
        return min(1.0, min(self.head_time, self.stalled_time, self.linger_time) / 4)


def room_for(connections: int, spare: int) -> int:
    """How many of these connections, and `spare` more, the process has descriptors for.

    Raises the process's soft limit as far as necessary and as the hard limit allows.
    """
    wanted = connections + spare + _RESERVED
    limit = allow_open_files(wanted)
    if limit >= wanted:
        return connections
    room = limit - spare - _RESERVED
    if room < _FEWEST:
        raise ConfigError(
            f"the process may open only {limit} files; raise the limit (ulimit -n) "
            f"to {spare + _RESERVED + _FEWEST} or more"
        )
    return room
