"""Files at https:// URLs: where they are kept, and how to get them.

    models/web/KEY/FILE.gguf    KEY comes from the URL, FILE is its last segment
    models/web/KEY/url          the URL

A split model (`...-00001-of-00003.gguf`) is named by its first file; the others come along.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from ingot.errors import StoreError
from ingot.files import write_file
from ingot.store.download import Checksum, Source
from ingot.store.http import get, patiently
from ingot.store.names import WebName, checked_url
from ingot.store.plan import Plan, PlannedFile
from ingot.store.quantizations import split_stem

_URL_FILE = "url"
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.gguf")


def find_web(name: WebName, folder: Path) -> Path | None:
    """The first file of a model that was downloaded from a URL."""
    files = list(_files(name, folder))
    return files[0][1] if all(path.is_file() for _, path in files) else None


def plan_web(name: WebName, folder: Path) -> Plan:
    """How to get the file at a URL."""
    files = list(_files(name, folder))
    if name.sha256 and len(files) > 1:
        raise StoreError("a split model has several files; leave out #sha256=")
    checksum = Checksum(name.sha256) if name.sha256 else None

    def finish() -> Path:
        first = files[0][1]
        write_file(first.with_name(_URL_FILE), [name.url.encode()])
        return first

    planned = (
        PlannedFile(Source(url, path.name, _length(url), checksum), path) for url, path in files
    )
    return Plan(str(name), tuple(planned), finish)


def web_models(folder: Path) -> Iterator[tuple[WebName, list[Path]]]:
    """The models that were downloaded from URLs."""
    for note in sorted(folder.glob(f"*/{_URL_FILE}")):
        with suppress(OSError, ValueError, StoreError):  # not written by us
            name = WebName(checked_url(note.read_text(encoding="ascii")))
            paths = [path for _, path in _files(name, folder)]
            if all(path.is_file() for path in paths):
                yield name, paths


def _length(url: str) -> int | None:
    """How long a file is, if its server says so."""
    with patiently(lambda: get(url, {})) as response:
        length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() and len(length) < 18 else None


def _files(name: WebName, folder: Path) -> Iterator[tuple[str, Path]]:
    """The URL and the place of each file."""
    parts = urlsplit(name.url)
    base, slash, last = parts.path.rpartition("/")
    plain = unquote(last)
    home = folder / hashlib.sha256(name.url.encode()).hexdigest()[:16]
    if not _PLAIN.fullmatch(plain):
        yield name.url, home / "model.gguf"
        return
    split = split_stem(plain)
    if split is None:
        yield name.url, home / plain
        return
    stem, number, count = split
    if number != 1:
        raise StoreError(f"{plain} is a later file of a split model; give its first one")
    for part in range(1, count + 1):
        file = f"{stem}-{part:05}-of-{count:05}.gguf"
        yield urlunsplit(parts._replace(path=f"{base}{slash}{file}")), home / file
