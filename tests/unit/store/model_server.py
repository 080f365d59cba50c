"""A server on this machine that speaks the protocols of the hub and of ollama's registry.

Files are served with ranges and ETags. `fail` makes the next requests for a path go wrong: a
status, a body that is cut, changed or stalls, a range that is ignored. All requests are kept, with
their headers. `away` is a second server under another host name, where files are redirected to,
as the hub does with its content network.
"""

import hashlib
import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

COMMIT = "c0ffee" + "0" * 34


@dataclass(frozen=True)
class Fault:
    """How one answer goes wrong."""

    status: int = 0  # instead of the answer
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int = -1  # after so many bytes of the body, the connection ends
    stall: int = -1  # after so many bytes, nothing comes until the server closes
    change: int = -1  # the byte at this place of the file is another one
    whole: bool = False  # a range is not understood; all of the file comes
    lengthless: bool = False  # the body ends with the connection


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]


class ModelServer:
    """A server in a thread."""

    def __init__(self, host: str) -> None:
        self.files: dict[str, bytes] = {}
        self.heads: dict[str, dict[str, str]] = defaultdict(dict)  # more headers of a path
        self.redirects: dict[str, str] = {}
        self.api: dict[str, Any] = {}
        self.asked: list[Asked] = []
        self.pace: threading.Event | None = None  # bodies wait for it after their first bytes
        self.stop = threading.Event()
        self._faults: dict[str, list[Fault]] = defaultdict(list)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.host = f"{host}:{self._server.server_port}"
        self.url = f"http://{self.host}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def fail(self, path: str, *faults: Fault) -> None:
        """Let the next GETs of a path go wrong, one after the other."""
        self._faults[path] += faults

    def fault(self, path: str) -> Fault | None:
        with self._lock:
            faults = self._faults[path]
            return faults.pop(0) if faults else None

    def gets(self, path: str) -> list[Asked]:
        """The GETs of a path."""
        return [asked for asked in self.asked if (asked.method, asked.path) == ("GET", path)]

    def close(self) -> None:
        self.stop.set()
        if self.pace:
            self.pace.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class HubAndOllama(ModelServer):
    """The hub and the registry, and a content network elsewhere."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1")
        self.away = ModelServer("localhost")

    def add_repo(self, repo: str, files: Mapping[str, bytes], gated: str | None = None) -> None:
        """A repository; its files are redirected to the content network."""
        siblings = []
        for name, content in files.items():
            digest = hashlib.sha256(content).hexdigest()
            lfs = {"sha256": digest, "size": len(content), "pointerSize": 134}
            siblings.append(
                {"rfilename": name, "size": len(content), "blobId": "1" * 40, "lfs": lfs}
            )
            path = f"/{repo}/resolve/{COMMIT}/{name}"
            self.redirects[path] = f"{self.away.url}/blob/{digest}?signature=secret"
            self.heads[path] = {
                "X-Repo-Commit": COMMIT,
                "X-Linked-Etag": f'"{digest}"',
                "X-Linked-Size": str(len(content)),
            }
            self.away.files[f"/blob/{digest}"] = content
        self.api[f"/api/models/{repo}"] = {
            "id": repo,
            "modelId": repo,
            "sha": COMMIT,
            "siblings": siblings,
            "tags": ["gguf"],
            "downloads": len(repo),
            "likes": 3,
            "lastModified": "2026-01-02T03:04:05.000Z",
            "createdAt": "2026-01-01T03:04:05.000Z",
            "private": False,
            "gated": gated or False,
        }

    def add_ollama(self, name: str, tag: str, layers: Mapping[str, bytes]) -> dict[str, Any]:
        """A model of the registry; gives its manifest, which may be changed."""
        listed = []
        for kind, content in layers.items():
            digest = hashlib.sha256(content).hexdigest()
            listed.append(
                {
                    "mediaType": f"application/vnd.ollama.image.{kind}",
                    "digest": f"sha256:{digest}",
                    "size": len(content),
                }
            )
            self.redirects[f"/v2/{name}/blobs/sha256:{digest}"] = f"{self.away.url}/blob/{digest}"
            self.away.files[f"/blob/{digest}"] = content
        manifest = {"schemaVersion": 2, "layers": listed}
        self.api[f"/v2/{name}/manifests/{tag}"] = manifest
        return manifest

    def blob(self, content: bytes) -> str:
        """The path of a file on the content network."""
        return f"/blob/{hashlib.sha256(content).hexdigest()}"

    def close(self) -> None:
        self.away.close()
        super().close()


@contextmanager
def serving() -> Iterator[HubAndOllama]:
    """A server for a `with` block."""
    server = HubAndOllama()
    try:
        yield server
    finally:
        server.close()


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            parts = urlsplit(self.path)
            headers = {key.lower(): value for key, value in self.headers.items()}
            server.asked.append(Asked(self.command, parts.path, parts.query, headers))
            fault = (server.fault(parts.path) if self.command == "GET" else None) or Fault()
            if fault.status:
                self.send(fault.status, b"no", fault.headers)
            elif parts.path in server.redirects:
                self.send(302, b"", {"Location": server.redirects[parts.path]})
            elif parts.path in server.files:
                self.send_file(server.files[parts.path], fault)
            elif (path := parts.path.removesuffix(f"/revision/{COMMIT}")) in server.api:
                self.send(200, json.dumps(server.api[path]).encode(), {})
            elif parts.path == "/api/models":
                words = parse_qs(parts.query).get("search", [""])[0].lower()
                found = [
                    each
                    for path, each in server.api.items()
                    if path.startswith("/api/models/") and words in each["id"].lower()
                ]
                self.send(200, json.dumps(found).encode(), {})
            else:
                self.send(404, b"nothing", {"X-Error-Code": "RepoNotFound"})

        def send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            all_of_them = {"Content-Length": str(len(body)), **headers}
            for key, value in (all_of_them | server.heads[urlsplit(self.path).path]).items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def send_file(self, content: bytes, fault: Fault) -> None:
            etag = f'"{hashlib.sha256(content).hexdigest()[:8]}"'
            asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            same = self.headers.get("If-Range", etag) == etag
            start, end, status = 0, len(content), 200
            if asked and same and not fault.whole:
                start, status = int(asked[1]), 206
                end = min(int(asked[2]) + 1, end) if asked[2] else end
                if start >= len(content):
                    self.send(416, b"", {"Content-Range": f"bytes */{len(content)}"})
                    return
            if fault.change >= 0:
                content = bytearray(content)  # type: ignore[assignment]
                content[fault.change] ^= 1  # type: ignore[index]
            self.send_response(status)
            self.send_header("ETag", etag)
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
            if fault.lengthless:
                self.close_connection = True
            else:
                self.send_header("Content-Length", str(end - start))
            self.end_headers()
            if self.command == "HEAD":
                return
            self.send_body(content[start:end], fault)

        def send_body(self, body: bytes, fault: Fault) -> None:
            for stop in (fault.cut, fault.stall):
                if stop >= 0:
                    self.wfile.write(body[:stop])
                    self.wfile.flush()
                    self.close_connection = True
                    if stop == fault.stall:
                        server.stop.wait(60)
                    return
            try:
                for at in range(0, len(body), 4096):
                    self.wfile.write(body[at : at + 4096])
                    if server.pace:
                        self.wfile.flush()
                        server.pace.wait(0.002)
            except OSError:  # the client has gone
                self.close_connection = True

    return Handler
