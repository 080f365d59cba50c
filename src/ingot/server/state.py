"""Server: the state that all endpoints share."""

import time
from collections.abc import Callable

from ingot.server.catalog import Catalog
from ingot.server.generation import Generations
from ingot.server.metrics import Metrics
from ingot.server.model_facts import FactsReader
from ingot.server.options import RequestOptions, ServerOptions
from ingot.server.slot_files import SlotFiles


class Server:
    """A server's options, models, metrics and current generations."""

    def __init__(self, options: ServerOptions, report: Callable[[str], None] | None = None) -> None:
        """`report` takes messages for the person who started the server."""
        self.options = options
        self.catalog = Catalog(options, report)
        self.generations = Generations()
        self.slot_files = SlotFiles(options)
        self.metrics = Metrics(self.catalog)
        self.facts = FactsReader()
        self.started = time.monotonic()
        self.draining = False  # the server is about to stop and refuses new requests

    def request_options(self, model: str | None) -> RequestOptions:
        """The options for requests to the model of a name."""
        served = self.catalog.find(model).model
        return RequestOptions(
            sampling=served.sampling,
            max_tokens=self.options.max_tokens,
            time_limit=self.options.time_limit,
            separates_reasoning=served.reasoning_format != "none",
        )

    def drain(self) -> None:
        """Refuse new requests."""
        self.draining = True

    def stop_generations(self) -> None:
        """Cancel current generations; their clients get an error that says why."""
        for generation in self.generations:
            generation.stop()

    async def close(self) -> None:
        """Close the models."""
        await self.catalog.close()
