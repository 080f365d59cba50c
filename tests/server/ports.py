"""Ports that stay free, for a server that restarts on the same one."""

import os
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000


def quiet_port() -> int:
    """A free port which the system gives to nobody who does not ask for it by its number."""
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    count = max(first - _LOWEST, 1)
    for number in range(count):
        port = _LOWEST + (os.getpid() * 101 + number) % count  # every process begins elsewhere
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise OSError(f"no port from {_LOWEST} to {first} is free")
