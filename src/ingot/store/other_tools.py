"""Models that LM Studio and llama.cpp have downloaded: found in their folders and used there.

    LM Studio    OWNER/REPO/FILE.gguf
    llama.cpp    OWNER_REPO_FILE.gguf, newer versions the layout of the hub's cache

LM Studio's folder is ~/.lmstudio/models, or what its settings say. Names of llama.cpp do not tell
where the repository ends, because its name may contain `_`: `hf:OWNER/REPO` takes what begins with
both, unless `-GGUF_`, with which most repositories end, comes later. A file that is being
downloaded has another ending in both tools. This module opens no model.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ingot.config import config
from ingot.errors import StoreError
from ingot.files import open_regular
from ingot.store.hub_cache import CachedFile, cached_files, cached_models, choose_for, is_in_repo
from ingot.store.names import HubName, parse_name
from ingot.store.quantizations import Choice, choices_of, projector_of

_STUDIO, _LLAMA = "LM Studio", "llama.cpp"
_DEEPEST = 4  # folders below the first
_LARGEST_SETTINGS = 1 << 20
_FLAT_REPO = re.compile(r".+?-gguf_", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model of another tool."""

    tool: str
    name: HubName | None  # None if the place does not tell
    choice: Choice[CachedFile]
    projector: CachedFile | None = None

    @property
    def weights(self) -> list[Path]:
        """Its files, in order."""
        return [file.link for file in self.choice.files]

    @property
    def others(self) -> list[Path]:
        """The files that come along."""
        return [self.projector.link] if self.projector else []

    @property
    def said(self) -> str:
        """A sentence about where it is."""
        return f"{self.tool} has it in {self.weights[0].parent}, where it is used"


def find_elsewhere(name: HubName) -> FoundModel | None:
    """The model of a name, if another tool has all its files."""
    flat = replace(name, file=name.file and name.file.replace("/", "_"))
    places = [
        *((_STUDIO, name, list(_files(folder / name.repo))) for folder in _studio_folders()),
        (_LLAMA, flat, list(_flat_files(name.repo))),
        *((_LLAMA, name, files) for files in cached_files(name.repo, config().llama_cpp_cache)),
    ]
    for tool, wanted, files in places:
        if choice := choose_for(wanted, files):
            return FoundModel(tool, name, choice, projector_of(files))
    return None


def found_models() -> Iterator[FoundModel]:
    """The models of other tools."""
    for folder in _studio_folders():
        for choice in _choices(folder):
            yield FoundModel(_STUDIO, _studio_name(choice.files[0].path), choice)
    cache = config().llama_cpp_cache
    for choice in _choices(cache):
        path = choice.files[0].path
        if not is_in_repo(path):
            yield FoundModel(_LLAMA, _flat_name(path), choice)
    if cache != config().hub_cache:
        for name, choice in cached_models(cache):
            yield FoundModel(_LLAMA, name, choice)


def _studio_name(path: str) -> HubName | None:
    owner, _, rest = path.partition("/")
    repo, _, file = rest.partition("/")
    return _hub_name(f"{owner}/{repo}", file)


def _flat_name(path: str) -> HubName | None:
    """What a file of llama.cpp is called, if there is only one `_` that can separate the owner."""
    repo = _FLAT_REPO.match(path)
    if repo is None or "/" in path:
        return None
    return _hub_name(repo[0].removesuffix("_").replace("_", "/"), path.removeprefix(repo[0]))


def _hub_name(repo: str, file: str) -> HubName | None:
    """The name of a file, if a user could write it."""
    with suppress(StoreError):
        if parse_name(f"hf:{repo}/{file}") == (name := HubName(repo, file=file)):
            return name
    return None


def _studio_folders() -> Iterator[Path]:
    """The folders that LM Studio's settings name, and those that it has without settings."""
    homes = config().lm_studio_homes
    configured = [folder for home in homes if (folder := _configured_folder(home))]
    yield from dict.fromkeys([*configured, *(home / "models" for home in homes)])


def _configured_folder(home: Path) -> Path | None:
    """The folder in LM Studio's settings; None if there is none that can be read."""
    try:
        with open_regular(home / "settings.json") as file:
            folder = Path(json.loads(file.read(_LARGEST_SETTINGS))["downloadsFolder"]).expanduser()
        return folder if folder.is_absolute() and folder.is_dir() else None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # also of too deep JSON
        return None


def _flat_files(repo: str) -> Iterator[CachedFile]:
    """The files of llama.cpp whose names begin with a repository; their paths are what follows."""
    prefix = f"{repo.replace('/', '_')}_"
    for file in _files(config().llama_cpp_cache, deepest=0):
        longer = _FLAT_REPO.match(file.path)
        if file.path.startswith(prefix) and (longer is None or longer[0] == prefix):
            yield CachedFile(file.path.removeprefix(prefix), file.size, file.link)


def _choices(folder: Path) -> list[Choice[CachedFile]]:
    return sorted(choices_of(_files(folder)), key=lambda choice: choice.files[0].path)


def _files(folder: Path, deepest: int = _DEEPEST) -> Iterator[CachedFile]:
    for root, folders, names in os.walk(folder):
        if len(Path(root).relative_to(folder).parts) >= deepest:
            folders.clear()
        for name in names:
            place = Path(root) / name
            if name.endswith(".gguf"):
                with suppress(OSError):  # it was removed in the meantime
                    path = place.relative_to(folder).as_posix()
                    yield CachedFile(path, place.stat().st_size, place)
