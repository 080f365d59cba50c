"""Models that LM Studio and llama.cpp have downloaded: found in their folders and used there.

LM Studio    ~/.lmstudio/models/OWNER/REPO/FILE.gguf
llama.cpp    ~/.cache/llama.cpp/OWNER_REPO_FILE.gguf, in newer versions the hub's cache
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ingot.config import config
from ingot.store.quantizations import Choice, choices_of

_DEEPEST = 4  # folders below the first


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file below a folder."""

    path: str
    size: int
    place: Path


def found_models() -> Iterator[tuple[str, Choice[FoundFile]]]:
    """The models of other tools: which tool, and the files."""
    folders = [("LM Studio", folder) for folder in config().lm_studio_folders]
    folders.append(("llama.cpp", config().llama_cpp_cache))
    for tool, folder in folders:
        for choice in sorted(choices_of(_files(folder)), key=lambda each: each.files[0].path):
            yield tool, choice


def _files(folder: Path) -> Iterator[FoundFile]:
    for root, folders, names in os.walk(folder):
        if len(Path(root).relative_to(folder).parts) >= _DEEPEST:
            folders.clear()
        for name in names:
            place = Path(root) / name
            if name.endswith(".gguf"):
                with suppress(OSError):  # it was removed in the meantime
                    path = place.relative_to(folder).as_posix()
                    yield FoundFile(path, place.stat().st_size, place)
