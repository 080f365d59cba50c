"""ModelEvents: what happens to the models of a server, for clients that watch.

The catalog publishes; each subscriber has a queue. A subscriber that does not read loses the oldest
events. All methods belong to one event loop.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MOST_WAITING = 256  # events of one subscriber


class ModelEvents:
    """Events of models, under llama-server's names."""

    def __init__(self) -> None:
        self._subscribers: set[asyncio.Queue[dict[str, Any]]] = set()

    def status(self, model: str, status: str, **data: object) -> None:
        """A model has changed its status."""
        self.publish(model, "model_status", {"status": status, **data})

    def publish(self, model: str, event: str, data: dict[str, Any] | None = None) -> None:
        """Tell all subscribers."""
        content = {"model": model, "event": event, **({} if data is None else {"data": data})}
        for queue in self._subscribers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(content)

    @contextmanager
    def subscribed(self) -> Iterator[asyncio.Queue[dict[str, Any]]]:
        """A queue of all events from now on."""
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MOST_WAITING)
        self._subscribers.add(queue)
        try:
            yield queue
        finally:
            self._subscribers.discard(queue)
