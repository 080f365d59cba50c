"""SlotFiles: the folder in which `/slots` saves caches.

In come names that clients give, out go paths in the folder and the bytes that a new file may have.
What a file contains is not known here.
"""

import asyncio
import os
import re
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ingot.files import sweep
from ingot.server.errors import ApiError
from ingot.server.options import ServerOptions

FULL = "slot_storage_full"  # the code of the error
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


class SlotFiles:
    """The files of saved slots, and how much room is left for them."""

    def __init__(self, options: ServerOptions) -> None:
        self._folder = options.slots_folder
        self._most_bytes = options.slot_save_limit
        self._most_files = options.slot_save_files
        self._one_save = asyncio.Lock()
        if self._folder is not None:
            sweep(self._folder)  # what a server that was killed has left

    def path(self, name: str | None) -> Path:
        """The file of a name, in the folder and nowhere else; it may not exist yet."""
        if self._folder is None:
            raise ApiError(400, "this server saves no slots: start it with --slot-save-path FOLDER")
        if name is None or not _NAME.fullmatch(name):
            raise ApiError(
                400,
                "filename must be a name of 1 to 200 letters, digits, '.', '_' and '-' that begins "
                "with a letter, a digit or '_'",
                param="filename",
            )
        path = self._folder / name
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return path
        if stat.S_ISLNK(mode):
            raise ApiError(400, f"{name!r} is a link, which is not followed", param="filename")
        if not stat.S_ISREG(mode):
            raise ApiError(400, f"{name!r} is not a regular file", param="filename")
        return path

    @asynccontextmanager
    async def room_for(self, path: Path) -> AsyncIterator[int]:
        """The bytes that a file may have; nobody else saves in the meantime."""
        async with self._one_save:
            try:
                others = _sizes(path.parent)
            except OSError as error:  # no descriptor is free, for example
                why = f"the folder of saved slots cannot be read: {error.strerror}"
                raise ApiError(507, why) from error
            others.pop(path.name, None)
            if len(others) >= self._most_files:
                raise ApiError(
                    413,
                    f"{len(others)} slots are saved, and the server keeps {self._most_files} at "
                    "most (--slot-save-files); save under a name that exists",
                    code=FULL,
                )
            yield max(0, self._most_bytes - sum(others.values()))


def _sizes(folder: Path) -> dict[str, int]:
    """The bytes of every file in a folder."""
    sizes = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.is_file(follow_symlinks=False):
                    sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:  # removed while we look
                continue
    return sizes
