"""Finds the models of a folder: its GGUF files, and those of its subfolders.

A split model counts once, under its first file. Projectors (`mmproj` in the name) are not models.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from ingot.errors import ConfigError
from ingot.server.catalog import model_name

_PART = re.compile(r"(.+)-(\d{5})-of-\d{5}\.gguf", re.DOTALL)
_MOST_FILES = 10_000  # a folder with more is a mistake


def find_models(folder: Path) -> dict[str, Path]:
    """The files of models by name, which is the file's name without its extension."""
    if not folder.is_dir():
        raise ConfigError(f"--models-dir: {folder} is not a folder")
    found: dict[str, Path] = {}
    for path in _files(folder):
        part = _PART.fullmatch(path.name)
        if "mmproj" in path.name.lower() or (part and part[2] != "00001"):
            continue
        name = part[1] if part else model_name(path)
        if name in found:  # the same name in two folders
            name = f"{path.parent.name}/{name}"
        found[name] = path
    return found


def _files(folder: Path) -> Iterator[Path]:
    for count, path in enumerate(sorted(folder.rglob("*.gguf"))):
        if count == _MOST_FILES:
            raise ConfigError(f"{folder} has more than {_MOST_FILES} GGUF files")
        if path.is_file():
            yield path
