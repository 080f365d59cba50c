"""SlotFiles: the folder in which `/slots` saves KV caches.

Names from clients come in; paths in the folder go out, and how many bytes a new file may have. It
does not know what a file contains.
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
    """The files of saved slots, and the space that is left for them."""

    def __init__(self, options: ServerOptions) -> None:
        self._folder = options.slots_folder
        self._max_bytes = options.slot_save_limit
        self._max_files = options.slot_save_files
        self._one_save = asyncio.Lock()
        if self._folder is not None:
            sweep(self._folder)  # remains of a server that was killed

    def path(self, name: str | None) -> Path:
        """The file of a name, always in the folder; it may not exist yet."""
        if self._folder is None:
            raise ApiError(
                400, "this server does not save slots; start it with --slot-save-path FOLDER"
            )
        if name is None or not _NAME.fullmatch(name):
            raise ApiError(
                400,
                "filename must have 1 to 200 letters, digits, '.', '_' and '-', and begin with a "
                "letter, a digit or '_'",
                param="filename",
            )
        path = self._folder / name
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return path
        if stat.S_ISLNK(mode):
            raise ApiError(
                400, f"{name!r} is a symbolic link, and links are not followed", param="filename"
            )
        if not stat.S_ISREG(mode):
            raise ApiError(400, f"{name!r} is not a regular file", param="filename")
        return path

    @asynccontextmanager
    async def room_for(self, path: Path) -> AsyncIterator[int]:
        """The bytes that a file may have; other saves wait until the end of the context."""
        async with self._one_save:
            try:
                others = _sizes(path.parent)
            except OSError as error:  # for example, no descriptor is free
                why = f"cannot read the folder of saved slots: {error.strerror}"
                raise ApiError(507, why) from error
            others.pop(path.name, None)
            if len(others) >= self._max_files:
                raise ApiError(
                    413,
                    f"{len(others)} slots are saved, and --slot-save-files allows "
                    f"{self._max_files}; use the name of an existing one",
                    code=FULL,
                )
            yield max(0, self._max_bytes - sum(others.values()))


def _sizes(folder: Path) -> dict[str, int]:
    """The bytes of every file in a folder."""
    sizes = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.is_file(follow_symlinks=False):
                    sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:  # removed in the meantime
                continue
    return sizes
