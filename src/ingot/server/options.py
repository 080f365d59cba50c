"""ServerOptions: models, address, access and limits of a server, checked when created."""

import ipaddress
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ingot.engine import EngineOptions
from ingot.errors import ConfigError
from ingot.models import Pooling
from ingot.reply.style import ReasoningFormat
from ingot.server.http.connection_limits import ConnectionLimits
from ingot.server.mcp_config import McpServerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model file, its name in requests, and how it is used."""

    name: str
    path: Path
    engine: EngineOptions = field(default_factory=EngineOptions)
    sampling: Mapping[str, object] = field(default_factory=dict)  # defaults by name
    chat_template: str | None = None  # the source of a template instead of the model's
    reasoning_format: ReasoningFormat = "auto"
    pooling: Pooling | None = None  # of embeddings; None: what the file states
    aliases: tuple[str, ...] = ()  # other names in requests
    opens_at_start: bool = False  # before the first request; the first model of a server always is
    context_shift: bool = False  # whether a text that fills the context drops its middle


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What a server's options mean for the requests to one model."""

    sampling: Mapping[str, object] = field(default_factory=dict)  # defaults by name
    max_tokens: int | None = None  # that a completion may have
    time_limit: float | None = None  # seconds
    separates_reasoning: bool = True  # or else reasoning stays in the text, with its tags


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Settings of a server. The first model opens at the start, others at their first request."""

    models: tuple[ServedModel, ...] = ()
    # More models, looked for at the start and again for an unknown name; opened when requested.
    discover: Callable[[], Sequence[ServedModel]] | None = None
    models_max: int | None = None  # open at once; None: what the memory allows
    models_memory: int | None = None  # bytes for all open models; None: what is available now
    host: str = "127.0.0.1"
    port: int = 8080
    api_keys: tuple[str, ...] = ()  # clients must send one of them; empty: no key is needed
    allow_open: bool = False  # listen on other addresses than loopback without a key
    cors_origins: tuple[str, ...] = ()  # origins whose pages may send requests; "*": all
    allowed_hosts: tuple[str, ...] = ()  # more names that `Host` may have; "*": any
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_body: int = 16 << 20  # bytes of a request's body
    max_bodies: int = 256 << 20  # bytes of the bodies of all current requests
    max_connections: int = 1024  # at once
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)  # of each connection
    max_tokens: int | None = None  # that a completion may have
    access_log: bool = True  # write a line to stderr for every request
    strict_parameters: bool = False  # refuse unknown parameters instead of warning about them
    time_limit: float | None = (
        None  # seconds that a completion may take, its time in the queue included
    )
    idle_unload: float | None = None  # seconds after which an unused model is closed
    shutdown_grace: float = 30.0  # seconds that current requests have to finish at shutdown
    allow_downloads: bool = False  # clients may have models downloaded, which `discover` finds
    allow_deletes: bool = False  # clients may have models of the store deleted
    adapters_folder: Path | None = None  # LoRA adapters that clients may load; None: none
    slots_folder: Path | None = None  # where `/slots` saves KV caches; None: saving is off
    slot_save_limit: int = 16 << 30  # bytes of all saved slots
    slot_save_files: int = 256
    batches_folder: Path | None = None  # where files and batches are kept; None: in memory
    mcp_servers: tuple[McpServerConfig, ...] = ()  # whose tools may be used; empty: MCP is off
    mcp_rounds: int = 16  # of tool calls that the server runs for one request
    mcp_seconds: float = 600.0  # that all of them together may take

    def __post_init__(self) -> None:
        if not self.models and self.discover is None:
            raise ConfigError("a server needs at least one model")
        if self.allow_downloads and self.discover is None:
            raise ConfigError("allow_downloads needs discover, which finds downloaded models")
        names = [name for model in self.models for name in (model.name, *model.aliases)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(
                f"two models have the name {twice!r}; give them names with -m NAME=FILE"
            )
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"the port is {self.port}; it must be a number from 0 to 65535")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both files: --tls-certificate and --tls-key")
        for folder in (self.slots_folder, self.batches_folder, self.adapters_folder):
            if folder is not None and not folder.is_dir():
                raise ConfigError(f"{folder} is not a folder; create it, or leave the option out")
        if any(not key.strip() or not key.isascii() for key in self.api_keys):
            raise ConfigError("an API key is empty or has characters that are not ASCII")
        for name in (
            "models_max",
            "models_memory",
            "max_body",
            "max_bodies",
            "max_connections",
            "max_tokens",
            "time_limit",
            "idle_unload",
            "slot_save_limit",
            "slot_save_files",
            "mcp_rounds",
            "mcp_seconds",
        ):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"{name} is {value!r}; it must be greater than 0")
        if not (self.shutdown_grace >= 0 and math.isfinite(self.shutdown_grace)):
            raise ConfigError(f"shutdown_grace is {self.shutdown_grace!r}; it must be 0 or more")
        if not (self.is_local or self.api_keys or self.allow_open):
            raise ConfigError(
                f"{self.host} can be reached from other machines: set an --api-key, or "
                "--allow-open to let everybody use the server"
            )

    @property
    def has_several_models(self) -> bool:
        """Whether requests choose among models: a router, in llama-server's words."""
        return self.discover is not None or len(self.models) > 1

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
