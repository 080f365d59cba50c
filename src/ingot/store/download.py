"""Download one file: resumed, verified, and in place only when it is complete.

A `Source` and the path of the target come in. The bytes go to a part, a file next to the target. If
the connection breaks, the server is asked for the rest; if the process ends, the next download
continues the part. A part is locked while somebody writes it, so two processes download a file
once. The part is renamed to the target when its size and checksum are right.

Without a checksum, a part is continued only if the server says that its file is still the same:
the name of that version (ETag) is kept in a file beside the part. This module knows neither the hub
nor GGUF, apart from the four letters at the beginning.
"""

import errno
import hashlib
import http.client
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from ingot.errors import ChecksumError, DiskSpaceError, DownloadError, StoreError
from ingot.files import DISK_RESERVE, move_file, require_room
from ingot.machine import lock_file, open_file
from ingot.store import http as web
from ingot.store.names import shown_url
from ingot.store.progress import Progress

_CHUNK = 1 << 20
_LARGEST_REQUEST = 32 << 30  # bytes; content networks refuse to send more than 50 GB at once
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Checksum:
    """What the bytes of a file must add up to: their sha256, or the id that git gives them."""

    value: str
    git: bool = False

    def new(self, size: int) -> _Hash:
        """An empty hash for a file of that size."""
        return hashlib.sha1(b"blob %d\0" % size) if self.git else hashlib.sha256()


@dataclass(frozen=True, slots=True)
class Source:
    """Where a file is, and what is known about it."""

    url: str
    label: str  # for messages
    size: int | None = None
    checksum: Checksum | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold a token


def download(source: Source, target: Path, report: Progress) -> None:
    """Make the target a complete copy of the source, unless it exists already."""
    with storing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked_part(target, report) as part:
            if part is None:
                return
            try:
                _Download(source, target, part, report).run()
            finally:
                if os.fstat(part.fileno()).st_size == 0:  # nothing to continue
                    part_of(target).unlink(missing_ok=True)
                    _version_of(target).unlink(missing_ok=True)


def read_beginning(source: Source, count: int) -> bytes:
    """The first bytes of a file that is not downloaded."""

    def ask() -> bytes:
        with web.get(source.url, {**source.headers, "Range": f"bytes=0-{count - 1}"}) as response:
            try:
                return response.read(count)
            except (OSError, http.client.HTTPException) as error:
                raise web.transient(source.url, error) from error

    return web.patiently(ask)


def part_of(target: Path) -> Path:
    """The part of a file that is being downloaded."""
    return target.with_name(f"{target.name}.ingot.incomplete")


def _version_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.ingot.version")


def is_intact(path: Path, size: int, checksum: Checksum, report: Progress, label: str) -> bool:
    """Whether a file has this size and checksum."""
    try:
        if path.stat().st_size != size:
            return False
        with path.open("rb") as file:
            digest = _hashed(file, checksum.new(size), size, report, f"checking {label}")
    except FileNotFoundError:
        return False
    return digest.hexdigest() == checksum.value


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raise an error if the disk of a folder, which may not exist yet, has no room."""
    require_room(folder, needed, what, "choose another disk with INGOT_CACHE or HF_HOME")


@contextmanager
def storing(target: Path) -> Iterator[None]:
    """Turn an `OSError` of the disk into a `StoreError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskSpaceError(f"the disk of {target.parent} is full; free some space") from error
        raise StoreError(
            f"cannot store {target.name} in {target.parent}: {error.strerror or error}; "
            "choose a writable folder with INGOT_CACHE or HF_HOME"
        ) from error


@contextmanager
def _locked_part(target: Path, report: Progress) -> Iterator[BinaryIO | None]:
    """The part of a target, locked; None if the target is complete."""
    path = part_of(target)
    while not target.exists():
        # Not "a+b": every write would go to the end, also after a seek.
        with os.fdopen(open_file(path, os.O_RDWR | os.O_CREAT), "r+b") as part:
            if not lock_file(part.fileno(), wait=False):
                report("waiting for another download", 0, 0)
                lock_file(part.fileno(), wait=True)
            if _is_at(path, part):  # or else it was renamed or removed in the meantime
                yield part
                return
    yield None


def _is_at(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


class _Download:
    """One file on its way. `done` bytes are in the part and in the hash."""

    def __init__(self, source: Source, target: Path, part: BinaryIO, report: Progress) -> None:
        self._source = source
        self._target = target
        self._part = part
        self._report = report
        self._size = source.size
        self._version_file = _version_of(target)
        self._version = self._saved_version()
        self.done = 0

    def run(self) -> None:
        source = self._source
        self._resume()
        resumed = self.done > 0
        while True:
            self._receive_all()
            if source.checksum is None or self._hash.hexdigest() == source.checksum.value:
                break
            self._restart()
            if not resumed:
                part_of(self._target).unlink(missing_ok=True)
                raise ChecksumError(
                    f"{source.label} from {shown_url(source.url)} has another checksum than "
                    f"{source.checksum.value}; it was removed, try again or use another source"
                )
            resumed = False  # the part was bad; all of it once more
        move_file(part_of(self._target), self._target)
        self._version_file.unlink(missing_ok=True)

    def _resume(self) -> None:
        """Take the bytes of an earlier download, if they can be trusted."""
        have = os.fstat(self._part.fileno()).st_size
        known = self._source.checksum is not None or self._version is not None
        if not known or (self._size is not None and have > self._size):
            self._restart()
            return
        self._hash = self._new_hash()
        if self._source.checksum is not None:
            stage = f"checking what there is of {self._source.label}"
            _hashed(self._part, self._hash, have, self._report, stage)
        self._part.seek(have)
        self.done = have

    def _restart(self) -> None:
        """Throw the part away."""
        self._part.seek(0)
        self._part.truncate()
        self._version = None
        self._version_file.unlink(missing_ok=True)
        self._hash = self._new_hash()
        self.done = 0

    def _new_hash(self) -> _Hash:
        checksum = self._source.checksum
        return checksum.new(self._size or 0) if checksum else hashlib.sha256()

    def _receive_all(self) -> None:
        patience = web.Patience()
        finished = self._size is not None and self.done == self._size
        self._show()
        while not finished:
            before = self.done
            try:
                finished = self._receive()
            except web.TransientError as error:
                if self.done > before:
                    patience.renew()
                patience.wait(error)
        self._part.flush()

    def _receive(self) -> bool:
        """Ask for the rest, or a large piece of it; whether the file is complete then."""
        try:
            response = web.get(self._source.url, {**self._source.headers, **self._range()})
        except web.RangeError:  # the part is not the beginning of that file
            if not self.done:
                raise
            self._restart()
            return False
        with response:
            end = self._begin(response)
            limit = end if end is not None else self.done + self._room()
            for chunk in self._chunks(response):
                if self.done + len(chunk) > limit:
                    raise DownloadError(f"{self._address} sends more than it said")
                self._write(chunk)
        if end is not None and self.done < end:
            raise web.TransientError(f"the answer of {self._address} ended early")
        return end is None or self.done == self._size

    def _chunks(self, response: web.Response) -> Iterator[bytes]:
        try:
            while chunk := response.read1(_CHUNK):
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            raise web.transient(self._source.url, error) from error

    def _write(self, chunk: bytes) -> None:
        unverified = not self.done and self._source.checksum is None
        if unverified and not chunk.startswith(b"GGUF"[: len(chunk)]):
            raise StoreError(f"{self._address} is not a GGUF file; open it in a browser")
        self._part.write(chunk)
        self._hash.update(chunk)
        self.done += len(chunk)
        self._show()

    def _show(self) -> None:
        self._report(f"downloading {self._source.label}", self.done, self._size or 0)

    def _range(self) -> dict[str, str]:
        """The headers that ask for the rest."""
        rest = None if self._size is None else self._size - self.done
        if not self.done and (rest is None or rest <= _LARGEST_REQUEST):
            return {}
        last = "" if rest is None else self.done + min(rest, _LARGEST_REQUEST) - 1
        asked = {"Range": f"bytes={self.done}-{last}"}
        if self._source.checksum is None and self._version is not None:
            asked["If-Range"] = self._version
        return asked

    def _begin(self, response: web.Response) -> int | None:
        """Read the head of an answer: how long the part is after it, if it says so."""
        length = response.headers.get("Content-Length", "")
        sent = int(length) if length.isdecimal() else None
        if response.status == 206:
            match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if match is None or int(match[1]) != self.done:
                raise DownloadError(f"{self._address} sends another range than was asked for")
            total = int(match[3]) if match[3] != "*" else self._size
            sent = int(match[2]) + 1 - self.done
        else:  # the file from its beginning
            self._restart()
            self._save_version(response)
            total = sent if sent is not None else self._size
        if self._size is None:
            self._size = total
        if total != self._size:
            self._restart()
            raise DownloadError(
                f"{self._source.label} has {total} bytes at {self._address}, not {self._size}"
            )
        if self._size is not None:
            require_space(self._target.parent, self._size - self.done, self._source.label)
        return self._size if sent is None else self.done + sent

    def _room(self) -> int:
        """How many bytes of a file without a length may come."""
        return max(shutil.disk_usage(self._target.parent).free - DISK_RESERVE, 0)

    def _saved_version(self) -> str | None:
        try:
            return self._version_file.read_text(encoding="ascii") or None
        except (OSError, UnicodeDecodeError):
            return None

    def _save_version(self, response: web.Response) -> None:
        if self._source.checksum is not None:
            return
        version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        if version.isascii() and version.isprintable() and not version.startswith("W/"):
            self._version_file.write_text(version, encoding="ascii")
            self._version = version or None

    @property
    def _address(self) -> str:
        return shown_url(self._source.url)


def _hashed(file: BinaryIO, digest: _Hash, size: int, report: Progress, stage: str) -> _Hash:
    """Add the first `size` bytes of a file to a hash."""
    done = 0
    while done < size and (chunk := file.read(min(_CHUNK, size - done))):
        digest.update(chunk)
        done += len(chunk)
        report(stage, done, size)
    return digest
