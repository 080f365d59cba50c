"""Server: the state that all endpoints share."""

import time
from collections.abc import Callable

from starlette.types import ASGIApp

from ingot.server.batches_folder import BatchesFolder
from ingot.server.catalog import Catalog
from ingot.server.downloads import Downloads
from ingot.server.errors import ApiError
from ingot.server.generation import Generations
from ingot.server.mcp.servers import McpServers
from ingot.server.metrics import Metrics
from ingot.server.model_facts import FactsReader, read_model, read_tokenizer
from ingot.server.options import RequestOptions, ServerOptions
from ingot.server.slot_files import SlotFiles
from ingot.server.status_history import StatusHistory


class Server:
    """A server's options, models, downloads, metrics, current generations and MCP servers."""

    def __init__(self, options: ServerOptions, report: Callable[[str], None] | None = None) -> None:
        """`report` takes messages for the person who started the server."""
        self.options = options
        self.catalog = Catalog(options, report)
        self.downloads = Downloads(self.catalog)
        self.generations = Generations()
        self.slot_files = SlotFiles(options)
        self.batches_folder = BatchesFolder(options.batches_folder)
        self.metrics = Metrics(self.catalog)
        self.history = StatusHistory(self.catalog)
        self.facts = FactsReader(read_model)
        self.tokenizers = FactsReader(read_tokenizer)
        self.started = time.monotonic()
        self.at_start: list[Callable[[ASGIApp], None]] = []  # called when requests can be answered
        self.mcp = McpServers(options.mcp_servers, report)
        self.draining = False  # the server is about to stop and refuses new requests
        self.stopped = False  # generations were cancelled, because the server stops

    def request_options(self, model: str | None) -> RequestOptions:
        """The options for requests to the model of a name."""
        served = self.catalog.find(model).model
        return RequestOptions(
            sampling=served.sampling,
            max_tokens=self.options.max_tokens,
            time_limit=self.options.time_limit,
            separates_reasoning=served.reasoning_format != "none",
        )

    def require_downloads(self) -> None:
        """Raise an error if clients may not have models downloaded."""
        if not self.options.allow_downloads:
            raise ApiError(
                403,
                "this server does not download models for clients: start it with "
                "--allow-downloads, or run `ingot pull` on its machine and serve the model with -m",
            )

    def drain(self) -> None:
        """Refuse new requests."""
        self.draining = True

    def stop_generations(self) -> None:
        """Cancel current generations and tool calls; their clients get an error that says why."""
        self.stopped = True
        for generation in self.generations:
            generation.stop()
        self.mcp.stop()

    async def close(self) -> None:
        """End the downloads, close the models and MCP servers, leave the folder of batches."""
        self.draining = True
        await self.downloads.close()
        await self.mcp.close()
        await self.catalog.close()
        self.batches_folder.release()
