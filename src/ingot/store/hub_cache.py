"""The hub's cache on this machine: find, list and remove models in it.

Its layout is that of the package `huggingface_hub`, which need not be installed to read it:

    models--OWNER--REPO/refs/main            the commit that `main` was at
    models--OWNER--REPO/snapshots/COMMIT/    links to blobs, under the names of the files
    models--OWNER--REPO/blobs/SHA256         the files

It does not know the network.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ingot.config import config
from ingot.errors import IngotError, ModelNotFoundError, StoreError
from ingot.machine import available_memory
from ingot.store.names import HubName
from ingot.store.quantizations import Choice, choices_of, choose

_PREFIX, _SEPARATOR = "models--", "--"


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A file of a snapshot."""

    path: str  # in the repository
    size: int
    link: Path


def repo_folder(repo: str) -> Path:
    """The folder of a repository; it may not exist."""
    return config().hub_cache / (_PREFIX + repo.replace("/", _SEPARATOR))


def find_cached(name: HubName) -> Choice[CachedFile] | None:
    """The model of a name, if all its files are in the cache."""
    for snapshot in _snapshots(repo_folder(name.repo)):
        with suppress(IngotError):  # it is not in this snapshot
            choices = choices_of(_files(snapshot))
            where = f"hf:{name.repo}"
            return choose(choices, name.quantization, name.file, available_memory(), where)[0]
    return None


def cached_models() -> Iterator[tuple[HubName, Choice[CachedFile]]]:
    """The models in the cache; each file once, in its newest snapshot."""
    for folder in sorted(config().hub_cache.glob(f"{_PREFIX}*{_SEPARATOR}*")):
        repo = folder.name.removeprefix(_PREFIX).replace(_SEPARATOR, "/", 1)
        seen: set[str] = set()
        for snapshot in _snapshots(folder):
            for choice in choices_of(_files(snapshot)):
                first = choice.files[0]
                if first.path not in seen:
                    seen.add(first.path)
                    yield HubName(repo, file=first.path), choice


def remove_cached(name: HubName) -> int:
    """Remove a model from all snapshots; the bytes that this frees.

    A blob that has another name as well stays.
    """
    folder = repo_folder(name.repo)
    found = {
        choice.files[0].path: [file.path for file in choice.files]
        for snapshot in _snapshots(folder)
        for choice in choices_of(_files(snapshot))
        if name.file in (None, choice.files[0].path)
        and (name.quantization or "").upper() in ("", choice.quantization)
    }
    if not found:
        raise ModelNotFoundError(f"{name} is not in the hub's cache, {config().hub_cache}")
    if len(found) > 1:
        names = ", ".join(str(HubName(name.repo, file=path)) for path in found)
        raise StoreError(f"{name} is several models; remove them one by one: {names}")
    (paths,) = found.values()
    links = [snapshot / path for snapshot in _snapshots(folder) for path in paths]
    sizes = {link.resolve(): link.stat().st_size for link in links if link.is_file()}
    for link in links:
        link.unlink(missing_ok=True)
        with suppress(OSError):  # a folder that has other files
            link.parent.rmdir()
    used = {link.resolve() for link in (folder / "snapshots").rglob("*") if link.is_symlink()}
    gone = [blob for blob in sizes if blob not in used]
    for blob in gone:
        blob.unlink(missing_ok=True)
    return sum(sizes[blob] for blob in gone)


def _snapshots(repo: Path) -> list[Path]:
    """The snapshots of a repository: the one of `main`, then the newest first."""
    try:
        found = [path for path in (repo / "snapshots").iterdir() if path.is_dir()]
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return []
    try:
        main = (repo / "refs" / "main").read_text().strip()
    except (OSError, UnicodeDecodeError):
        main = ""
    return sorted(found, key=lambda path: path.name != main)


def _files(snapshot: Path) -> Iterator[CachedFile]:
    for root, _, names in os.walk(snapshot):
        for name in names:
            link = Path(root) / name
            with suppress(OSError):  # a link to a blob that was removed
                yield CachedFile(link.relative_to(snapshot).as_posix(), link.stat().st_size, link)
