"""What a user may write to name a model, and which kind of name it is.

    default                          the model that `ingot pull` downloads
    hf:OWNER/REPO[:QUANT]            a repository of the Hugging Face hub; OWNER/REPO works too
    hf:OWNER/REPO/FILE               a file in it
    https://HOST/FILE[#sha256=HEX]   a single file; with its checksum, if you know it
    ollama:NAME[:TAG]                a model of ollama's registry; NAME may begin with HOST/
    anything else                    the path of a file, or the name of a file in the cache

A text comes in, a frozen name goes out. This module asks nobody whether the model exists; it only
looks whether a text is also the path of something, because an existing path always wins.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from ingot.errors import StoreError

DEFAULT = "default"
OLLAMA_HOST, OLLAMA_NAMESPACE, OLLAMA_TAG = "registry.ollama.ai", "library", "latest"

_REMOTE = ("hf:", "https://", "http://", "ollama:")
_SEGMENT = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?"
_REPO = re.compile(rf"(?P<repo>{_SEGMENT}/{_SEGMENT})(?::(?P<quantization>[A-Za-z0-9_-]{{1,32}}))?")
_REPO_FILE = re.compile(rf"(?P<repo>{_SEGMENT}/{_SEGMENT})/(?P<file>.+\.gguf)")
_OLLAMA_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_OLLAMA_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}(:\d{1,5})?")
_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class DefaultName:
    """The default model."""


@dataclass(frozen=True, slots=True)
class FileName:
    """The path of a file, or the name of a file in the cache."""

    text: str


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository of the hub, and which of its files."""

    repo: str
    quantization: str | None = None
    file: str | None = None
    plain: bool = False  # written without `hf:`, so it may be a mistyped path

    def __str__(self) -> str:
        tail = f":{self.quantization}" if self.quantization else f"/{self.file}"
        return f"hf:{self.repo}{tail if self.quantization or self.file else ''}"


@dataclass(frozen=True, slots=True)
class WebName:
    """A file at a URL."""

    url: str
    sha256: str | None = None

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True)
class OllamaName:
    """A model of ollama's registry, or of another one that speaks its protocol."""

    host: str
    namespace: str
    model: str
    tag: str

    def __str__(self) -> str:
        parts = [self.model]
        if self.namespace != OLLAMA_NAMESPACE or self.host != OLLAMA_HOST:
            parts.insert(0, self.namespace)
        if self.host != OLLAMA_HOST:
            parts.insert(0, self.host)
        return f"ollama:{'/'.join(parts)}:{self.tag}"


ModelName = DefaultName | FileName | HubName | WebName | OllamaName


def is_remote(text: str) -> bool:
    """Whether a name says where its model is downloaded from, so that it is never a path."""
    return text.startswith(_REMOTE)


def parse_name(text: str) -> ModelName:
    """Tell what kind of name a text is; `StoreError` if it begins like one and is malformed."""
    if text == DEFAULT:
        return DefaultName()
    if text.startswith("hf:"):
        return _hub_name(text)
    if text.startswith(("https://", "http://")):
        return _web_name(text)
    if text.startswith("ollama:"):
        return _ollama_name(text)
    plain = _REPO.fullmatch(text)
    if plain and not text.endswith(".gguf") and not Path(text).exists():
        return HubName(plain["repo"], plain["quantization"], plain=True)
    return FileName(text)


def is_safe_path(path: str) -> bool:
    """Whether a relative path from elsewhere stays in its folder and has only plain characters."""
    segments = path.split("/")
    return (
        len(path) <= 512
        and path.isprintable()
        and not set(path) & {"\\", ":"}  # which begin another path or a drive on Windows
        and all(segment not in ("", ".", "..") for segment in segments)
    )


def checked_url(url: str) -> str:
    """The URL if it may be opened: https, or http on this machine, and without a password."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise StoreError(f"{shown_url(url)!r} is not a URL: {error}") from None
    if not host or not url.isascii() or not url.isprintable() or " " in url:
        raise StoreError(f"{shown_url(url)!r} is not a URL; percent-encode special characters")
    if parts.username is not None or parts.password is not None:
        raise StoreError(f"the URL of {host} contains a user name or password; remove it")
    if parts.scheme != "https" and not (parts.scheme == "http" and _LOOPBACK.fullmatch(host)):
        raise StoreError(f"{shown_url(url)!r} is not encrypted; use https://")
    return url


def shown_url(url: str) -> str:
    """A URL for messages, without what may be secret: the query, a user name, a password."""
    head, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{head}{mark}{host.rpartition('@')[2]}{slash}{re.split('[?#]', path)[0]}"


def _hub_name(text: str) -> HubName:
    body = text.removeprefix("hf:")
    if match := _REPO.fullmatch(body):
        return HubName(match["repo"], match["quantization"])
    match = _REPO_FILE.fullmatch(body)
    if match and is_safe_path(match["file"]):
        return HubName(match["repo"], file=match["file"])
    raise StoreError(f"{text!r} is not a name: use hf:OWNER/REPO, hf:OWNER/REPO:QUANT or /FILE")


def _web_name(text: str) -> WebName:
    parts = urlsplit(checked_url(text))
    kind, _, sha256 = parts.fragment.partition("=")
    if parts.fragment and not (kind == "sha256" and _SHA256.fullmatch(sha256)):
        raise StoreError(f"the part of {shown_url(text)!r} after # must be sha256=64 hex digits")
    return WebName(urlunsplit(parts._replace(fragment="")), sha256 or None)


def _ollama_name(text: str) -> OllamaName:
    path, _, last = text.removeprefix("ollama:").rpartition("/")
    model, _, tag = last.partition(":")
    parts = [part for part in path.split("/") if path]
    host = parts.pop(0) if len(parts) == 2 else OLLAMA_HOST
    namespace = parts.pop(0) if parts else OLLAMA_NAMESPACE
    tag = tag or OLLAMA_TAG
    valid = all(_OLLAMA_PART.fullmatch(part) for part in (namespace, model, tag))
    if parts or not valid or not _OLLAMA_HOST.fullmatch(host):
        raise StoreError(
            f"{text!r} is not a name: use ollama:NAME[:TAG] or ollama:OWNER/NAME[:TAG]"
        )
    return OllamaName(host, namespace, model, tag)
