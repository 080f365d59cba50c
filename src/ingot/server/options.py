"""ServerOptions: what a server serves, to whom and within which limits, checked when made."""

import ipaddress
import math
from dataclasses import dataclass, field
from pathlib import Path

from ingot.engine import EngineOptions
from ingot.errors import ConfigError
from ingot.server.limits import ConnectionLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model and the name requests call it by."""

    name: str
    path: Path
    engine: EngineOptions = field(default_factory=EngineOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Settings of a server. The first model is opened at the start, others when asked for."""

    models: tuple[ServedModel, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    api_keys: tuple[str, ...] = ()  # whoever has one of them may ask; none: everybody may
    allow_open: bool = False  # listen beyond this machine though there is no key
    cors_origins: tuple[str, ...] = ()  # pages of other origins that may ask; "*": all
    allowed_hosts: tuple[str, ...] = ()  # more names that this server is called by; "*": any
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_body: int = 16 << 20  # bytes of a request
    max_connections: int = 1024  # at once
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)  # of each connection
    max_tokens: int | None = None  # that one request may have written
    time_limit: float | None = None  # seconds that a text may take, its wait included
    idle_unload: float | None = None  # seconds after which a model that is not used is closed
    shutdown_grace: float = 30.0  # seconds that texts have to end when the server is to stop
    slots_folder: Path | None = None  # where caches are saved; none: they are not
    slot_save_limit: int = 16 << 30  # bytes of all saved caches
    slot_save_files: int = 256

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("a server needs at least one model")
        names = [model.name for model in self.models]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(f"two models are called {twice!r}; name them: -m NAME=FILE")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"the port is {self.port}; it must be a number from 0 to 65535")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both files: --tls-certificate and --tls-key")
        if self.slots_folder is not None and not self.slots_folder.is_dir():
            raise ConfigError(f"{self.slots_folder} is no folder; make it, or leave it out")
        if any(not key.strip() or not key.isascii() for key in self.api_keys):
            raise ConfigError("an API key is empty, or not of ASCII characters")
        for name in (
            "max_body",
            "max_connections",
            "max_tokens",
            "time_limit",
            "idle_unload",
            "slot_save_limit",
            "slot_save_files",
        ):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"{name} is {value!r}; it must be greater than 0")
        if not (self.shutdown_grace >= 0 and math.isfinite(self.shutdown_grace)):
            raise ConfigError(f"shutdown_grace is {self.shutdown_grace!r}; it must be 0 or more")
        if not (self.is_local or self.api_keys or self.allow_open):
            raise ConfigError(
                f"{self.host} can be reached from other machines: give an --api-key, or say "
                "--allow-open if everybody there may use the server"
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
