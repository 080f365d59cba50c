"""The web page at `/`: a chat, a token view, a dashboard.

Its router serves the files under `static/` from memory, and reads PDF files that are attached to
messages. The page knows the server only by its API.
A strict content security policy lets the browser run only the page's own scripts and connect only
to this server, and forbids turning text into markup (trusted types).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Final

from fastapi import APIRouter, HTTPException, Request, Response

from ingot.server.page import pdf_text
from ingot.server.page.reference import reference

_TYPES: Final = MappingProxyType(
    {
        "html": "text/html; charset=utf-8",
        "css": "text/css; charset=utf-8",
        "js": "text/javascript; charset=utf-8",
        "svg": "image/svg+xml",
    }
)
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    headers: MappingProxyType[str, str]


def _walk(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry


def _file(name: str, content: bytes) -> _File:
    headers = {
        "Content-Type": _TYPES[name.rpartition(".")[2]],
        "Content-Security-Policy": _POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        # Browsers keep the files but ask each time whether they have changed.
        "Cache-Control": "no-cache",
        "ETag": f'"{sha256(content).hexdigest()[:32]}"',
    }
    return _File(content, MappingProxyType(headers))


def _answer(file: _File, request: Request) -> Response:
    headers = dict(file.headers)
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers)


def router() -> APIRouter:
    """Serve the page at `/`, its files under `/page/`, the list of endpoints at `/docs`."""
    entries = _walk(files(__name__) / "static")
    static = {name: _file(name, entry.read_bytes()) for name, entry in entries}
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    async def index(request: Request) -> Response:
        return _answer(static["index.html"], request)

    @routes.get("/docs")
    async def docs(request: Request) -> Response:
        written = reference(request.app.openapi())
        return _answer(_file("docs.html", written.encode()), request)

    @routes.get("/page/{name:path}")
    async def file(name: str, request: Request) -> Response:
        if name not in static:
            raise HTTPException(404)
        return _answer(static[name], request)

    routes.include_router(pdf_text.router())
    return routes
