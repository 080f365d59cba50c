"""Call: an HTTP request on its way from the front to a replica, and which replica it wants.

    PREFIX   the one that has the beginning of its prompt in its cache: `keys` identify it
    HOME     always the same one, because an endpoint keeps something in memory
    EACH     all of them, at the same time

An ASGI scope and a body come in. It does not know Ray.
"""

import json
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any

from starlette.types import Scope

BLOCK = 128  # bytes of a prompt's text that one key stands for
_MOST_KEYS = 512

# Parts of a body in the order in which templates write them.
_BEGINNING = ("model", "tools", "system", "instructions")
_PROMPTS = ("messages", "prompt", "input", "input_prefix", "content", "query", "text_1")
# Endpoints that keep files, batches, answers, downloads or caches.
_HOME_FOLDERS = (
    "/v1/files",
    "/v1/batches",
    "/v1/messages/batches",
    "/v1/responses/",
    "/responses/",
    "/slots",
    "/models/download",
    "/models/sse",
    "/api/pull",
    "/mcp/",
)
_RESPONSES = frozenset({"/v1/responses", "/responses"})
METRICS, STATUS, HISTORY = "/metrics", "/api/status", "/api/status/history"
LOADED = "/api/ps"  # the open models, for Ollama's clients
# What must happen on all replicas.
_EACH = frozenset(
    {
        "/lora-adapters",
        "/models/load",
        "/models/unload",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
    }
)
_OLLAMA = frozenset({"/api/generate", "/api/chat"})


class Route(Enum):
    """Which replica a call wants."""

    PREFIX = "prefix"
    HOME = "home"
    EACH = "each"


@dataclass(frozen=True, slots=True)
class Call:
    """An HTTP request."""

    scope: dict[str, Any]
    body: bytes
    route: Route
    keys: tuple[int, ...] = ()

    @property
    def path(self) -> str:
        """The path of the URL."""
        return str(self.scope["path"])


def call_of(scope: Scope, body: bytes) -> Call:
    """The call of an ASGI scope, of which only plain values are kept, and a body."""
    kept = {name: value for name, value in scope.items() if name in _KEPT}
    fields = _fields(body)
    route = _route(scope["method"], scope["path"], fields)
    keys = prefix_keys(_beginning(fields)) if route is Route.PREFIX else ()
    return Call(kept, body, route, keys)


_KEPT = frozenset(
    {
        "type",
        "asgi",
        "http_version",
        "method",
        "scheme",
        "path",
        "raw_path",
        "query_string",
        "root_path",
        "headers",
        "client",
        "server",
    }
)


def _fields(body: bytes) -> dict[str, Any]:
    """The fields of a body, or none: what is wrong with it, the replica says."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _route(method: str, path: str, fields: dict[str, Any]) -> Route:
    if path in (METRICS, STATUS, HISTORY, LOADED) or (path in _EACH and method == "POST"):
        return Route.EACH
    if path in _OLLAMA and not (fields.get("prompt") or fields.get("messages")):
        return Route.EACH  # it opens or closes the model
    keeps = path in _RESPONSES and fields.get("store") is not False
    continues = any(fields.get(name) is not None for name in ("previous_response_id", "thread"))
    slot = fields.get("id_slot")
    in_slot = isinstance(slot, int) and slot >= 0
    if keeps or continues or in_slot or path.startswith(_HOME_FOLDERS):
        return Route.HOME
    return Route.PREFIX


def _beginning(fields: dict[str, Any]) -> bytes:
    """What a prompt begins with, before anything that differs more often."""
    parts = [
        json.dumps(fields[name], ensure_ascii=False)
        for name in (*_BEGINNING, *_PROMPTS)
        if fields.get(name) is not None
    ]
    return "\n".join(parts)[: BLOCK * _MOST_KEYS].encode("utf-8", "surrogatepass")


def prefix_keys(text: bytes) -> tuple[int, ...]:
    """A key for each whole block of a text; it stands for the block and all before it."""
    keys = []
    digest = blake2b(digest_size=8)
    for start in range(0, min(len(text), BLOCK * _MOST_KEYS) - BLOCK + 1, BLOCK):
        digest.update(text[start : start + BLOCK])
        keys.append(int.from_bytes(digest.copy().digest()))
    return tuple(keys)
