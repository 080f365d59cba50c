"""BatchesFolder: the folder in which files and batches survive a restart, used by one server.

A server claims it by locking a file, which the system unlocks when the process ends; so every batch
is resumed once, also if several servers have the same folder. Without a folder there is nothing to
claim. It does not know what is in the folder.
"""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from starlette.types import ASGIApp

from ingot.errors import ConfigError
from ingot.machine import lock_file
from ingot.server.errors import ApiError

_LOCK = "server.lock"


class BatchesFolder:
    """A folder that at most one server uses; None: all is kept in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock: BinaryIO | None = None
        self._loads: list[Callable[[], None]] = []
        self._resumes: list[Callable[[ASGIApp], None]] = []

    def part(self, name: str) -> Path | None:
        """A folder within it."""
        return None if self._path is None else self._path / name

    def when_claimed(
        self, load: Callable[[], None], resume: Callable[[ASGIApp], None] | None = None
    ) -> None:
        """`load` reads what the server before left, and `resume` goes on with it."""
        self._loads.append(load)
        if resume is not None:
            self._resumes.append(resume)

    @property
    def is_claimed(self) -> bool:
        """Whether there is a folder, and this server uses it."""
        return self._lock is not None

    def claim(self) -> bool:
        """Lock the folder and load what is in it; False if another server has it."""
        if self._path is None or self.is_claimed:
            return True
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (self._path / _LOCK).open("ab")
        try:
            if not lock_file(lock.fileno(), wait=False):
                lock.close()
                return False
        except OSError as error:
            lock.close()
            raise ConfigError(
                f"{self._path} cannot be locked, so that two servers might use it: {error.strerror}"
            ) from None
        self._lock = lock
        for load in self._loads:
            load()
        return True

    def resume(self, app: ASGIApp) -> None:
        """Go on with what was loaded; nothing if another server has the folder."""
        if self.is_claimed:
            for resume in self._resumes:
                resume(app)

    def require(self, app: ASGIApp) -> None:
        """Take the folder over if its server has ended; an error if it has not."""
        if self._path is None or self.is_claimed:
            return
        if not self.claim():
            raise ApiError(
                503,
                "another server uses the folder of files and batches: ask that one, or try again "
                "when it has ended",
                code="batches_elsewhere",
                retry=True,
            )
        self.resume(app)

    def release(self) -> None:
        """Leave the folder to the next server."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
