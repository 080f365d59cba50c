"""Options of `ingot serve` about the server itself: its limits, and who may use it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ingot.cli.shared.output import read_text
from ingot.config import config
from ingot.errors import ConfigError

_LIMITS, _ACCESS = "Limits", "Access"


def _option(panel: str, *names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFlags:
    """Fields of `ServerOptions` that limit requests."""

    max_tokens: Annotated[
        int | None, _option(_LIMITS, "--max-tokens", text="Maximum tokens of an answer. [no limit]")
    ] = None
    time_limit: Annotated[
        float | None,
        _option(_LIMITS, "--time-limit", text="Maximum seconds for an answer. [no limit]"),
    ] = None
    max_body: Annotated[
        int, _option(_LIMITS, "--max-body", text="Maximum bytes of a request body.")
    ] = 16 << 20
    max_connections: Annotated[
        int, _option(_LIMITS, "--max-connections", text="Maximum open connections.")
    ] = 1024
    idle_unload: Annotated[
        float | None,
        _option(
            _LIMITS,
            "--idle-unload",
            "--sleep-idle-seconds",
            text="Close a model after this many seconds without requests; the next request opens "
            "it again. [never]",
        ),
    ] = None
    shutdown_grace: Annotated[
        float,
        _option(
            _LIMITS,
            "--shutdown-grace",
            text="Seconds that running answers may take when the server stops.",
        ),
    ] = 30.0
    slot_save_limit: Annotated[
        int, _option(_LIMITS, "--slot-save-limit", text="Maximum bytes of all saved KV caches.")
    ] = 16 << 30
    slot_save_files: Annotated[
        int, _option(_LIMITS, "--slot-save-files", text="Maximum number of saved KV caches.")
    ] = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFlags:
    """Who may use the server."""

    api_keys: Annotated[
        list[str] | None,
        _option(
            _ACCESS,
            "--api-key",
            text="API key that clients must send; may be repeated. Also: INGOT_API_KEY.",
        ),
    ] = None
    api_key_file: Annotated[
        Path | None, _option(_ACCESS, "--api-key-file", text="A file with one API key per line.")
    ] = None
    allow_open: Annotated[
        bool,
        _option(
            _ACCESS, "--allow-open", text="Allow other machines to connect without an API key."
        ),
    ] = False
    cors_origins: Annotated[
        list[str] | None,
        _option(
            _ACCESS,
            "--cors-origin",
            text="Origin whose web pages may send requests; `*`: all. May be repeated.",
        ),
    ] = None
    allowed_hosts: Annotated[
        list[str] | None,
        _option(
            _ACCESS,
            "--allowed-host",
            text="Extra host name that clients may use without an API key; `*`: any. May be "
            "repeated.",
        ),
    ] = None
    tls_certificate: Annotated[
        Path | None, _option(_ACCESS, "--tls-certificate", text="TLS certificate, a PEM file.")
    ] = None
    tls_key: Annotated[
        Path | None, _option(_ACCESS, "--tls-key", text="TLS private key, a PEM file.")
    ] = None

    def options(self) -> dict[str, Any]:
        """The fields of `ServerOptions`."""
        return {
            "api_keys": self._keys(),
            "allow_open": self.allow_open,
            "cors_origins": tuple(self.cors_origins or ()),
            "allowed_hosts": tuple(self.allowed_hosts or ()),
            "tls_certificate": self.tls_certificate,
            "tls_key": self.tls_key,
        }

    def _keys(self) -> tuple[str, ...]:
        keys = list(self.api_keys or ())
        if (from_environment := config().api_key) is not None:
            keys.append(from_environment)
        if self.api_key_file is not None:
            lines = read_text(self.api_key_file).splitlines()
            keys += [line.strip() for line in lines if line.strip()]
            if not keys:
                raise ConfigError(f"{self.api_key_file} contains no API key")
        return tuple(keys)
