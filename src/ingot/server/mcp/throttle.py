"""Throttle: how fast an MCP server is read, so that one that floods costs little."""

import asyncio
import time

_MESSAGES = 1000  # a second
_BYTES = 8 << 20  # a second
_BURST = 1.0  # seconds' worth that may come at once


class Throttle:
    """Waits if too much has come; the rest stays with the server that sent it."""

    def __init__(self) -> None:
        self._due = 0.0  # when what has come so far will have been paid for

    async def spend(self, *, size: int = 0, messages: int = 0) -> None:
        """Account for bytes and messages that have come."""
        now = time.monotonic()
        self._due = max(now, self._due) + max(size / _BYTES, messages / _MESSAGES)
        if (ahead := self._due - now - _BURST) > 0:
            await asyncio.sleep(ahead)
