"""Server: what all endpoints of one server share."""

import time
from collections.abc import Callable

from ingot.server.catalog import Catalog
from ingot.server.metrics import Metrics
from ingot.server.options import ServerOptions
from ingot.server.slot_files import SlotFiles
from ingot.server.writing import Writings


class Server:
    """A server's options, models, measurements and the texts it is writing."""

    def __init__(self, options: ServerOptions, tell: Callable[[str], None] | None = None) -> None:
        """`tell` is for the person who started it."""
        self.options = options
        self.catalog = Catalog(options.models, options.idle_unload, tell)
        self.writings = Writings()
        self.slot_files = SlotFiles(options)
        self.metrics = Metrics(self.catalog)
        self.started = time.monotonic()
        self.draining = False  # nothing new is begun: the server is about to stop

    def drain(self) -> None:
        """Begin nothing new."""
        self.draining = True

    def stop_texts(self) -> None:
        """End the texts that are being written; their readers are told why."""
        for writing in self.writings:
            writing.stop()

    async def close(self) -> None:
        """Close the models."""
        await self.catalog.close()
