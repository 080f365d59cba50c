"""The file of `--mcp-config`: the MCP servers whose tools this server may use.

    {"mcpServers": {
        "files": {"command": "npx", "args": ["-y", "a-package"], "env": {"NAME": "value"}},
        "search": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ..."}}
    }}

Other programs read the same file, so it may have keys that mean nothing here; `unknown` names them.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingot.errors import ConfigError

_CALL_SECONDS = 60.0
_KINDS = {"stdio": "command", "http": "url", "streamable-http": "url", "streamableHttp": "url"}
_KNOWN = frozenset(
    {"type", "command", "args", "env", "cwd", "url", "headers", "timeout", "disabled"}
)


@dataclass(frozen=True, slots=True)
class McpCommand:
    """A program that speaks MCP on its stdin and stdout."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)  # besides a few harmless variables
    cwd: Path | None = None


@dataclass(frozen=True, slots=True)
class McpUrl:
    """The address of a server that speaks MCP over streamable HTTP."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class McpServerConfig:
    """An MCP server and its name."""

    name: str
    target: McpCommand | McpUrl
    timeout: float = _CALL_SECONDS  # seconds that a tool call may take
    unknown: tuple[str, ...] = ()  # keys of its entry that mean nothing here


def read_mcp_config(path: Path) -> tuple[McpServerConfig, ...]:
    """The servers that a file lists, without disabled ones; what is wrong with it is an error."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    servers = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f'{path} must have the form {{"mcpServers": {{"name": {{...}}}}}}')
    entries = [_Entry(path, name, given) for name, given in servers.items()]
    return tuple(entry.config() for entry in entries if not entry.is_disabled)


class _Entry:
    """One server of the file."""

    def __init__(self, path: Path, name: str, given: object) -> None:
        self._where = f"{path}: mcpServers.{name}"
        self._name = name
        if not name or len(name) > 64:
            raise ConfigError(f"{path}: the name of an MCP server has 1 to 64 characters")
        if not isinstance(given, dict):
            raise ConfigError(f"{self._where} must be an object")
        self._given: dict[str, Any] = given

    @property
    def is_disabled(self) -> bool:
        """Whether the file turns the server off."""
        return bool(self._get("disabled", False, lambda value: isinstance(value, bool), "a bool"))

    def config(self) -> McpServerConfig:
        """The server, checked."""
        kind = self._get("type", None, lambda value: value in _KINDS, f"one of {', '.join(_KINDS)}")
        ways = [name for name in ("command", "url") if name in self._given]
        if len(ways) != 1 or (kind is not None and _KINDS[kind] != ways[0]):
            raise ConfigError(f"{self._where} needs either a command (stdio) or a url (HTTP)")
        return McpServerConfig(
            self._name,
            self._command() if ways == ["command"] else self._url(),
            self._get("timeout", _CALL_SECONDS, _is_time, "a number of seconds"),
            tuple(sorted(self._given.keys() - _KNOWN)),
        )

    def _command(self) -> McpCommand:
        cwd = self._get("cwd", None, _is_text, "a path")
        return McpCommand(
            self._get("command", "", _is_text, "the name of a program"),
            tuple(self._get("args", [], _are_texts, "a list of strings")),
            self._get("env", {}, _maps_texts, "an object of strings"),
            None if cwd is None else Path(cwd).expanduser(),
        )

    def _url(self) -> McpUrl:
        def is_url(value: object) -> bool:
            return isinstance(value, str) and value.startswith(("http://", "https://"))

        return McpUrl(
            self._get("url", "", is_url, "an address that begins with http:// or https://"),
            self._get("headers", {}, _maps_texts, "an object of strings"),
        )

    def _get(self, name: str, default: Any, is_valid: Callable[[object], bool], wanted: str) -> Any:
        if (value := self._given.get(name)) is None:
            return default
        if not is_valid(value):
            raise ConfigError(f"{self._where}.{name} must be {wanted}")
        return value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, str) and "\0" not in each for each in value
    )


def _maps_texts(value: object) -> bool:
    return isinstance(value, dict) and _are_texts(list(value.values()))


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
