"""The hub's cache on this machine: find, list and remove models and checkpoints in it.

Its layout is that of the package `huggingface_hub`, which need not be installed to read it:

    models--OWNER--REPO/refs/main            the commit that `main` was at
    models--OWNER--REPO/snapshots/COMMIT/    links to blobs, under the names of the files
    models--OWNER--REPO/blobs/SHA256         the files

It does not know the network.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ingot.config import config
from ingot.errors import IngotError, ModelNotFoundError, StoreError
from ingot.machine import available_memory
from ingot.store.checkpoint_files import INDEX, CheckpointFiles, checkpoint_files
from ingot.store.names import HubName
from ingot.store.quantizations import Choice, choices_of, choose

_PREFIX, _SEPARATOR = "models--", "--"
_SNAPSHOTS = "snapshots"
_PART = re.compile(r".+-\d{5}-of-\d{5}\.safetensors")
_WEIGHTS_OF_INDEX = re.compile(rb'"([^"/]{1,255}\.safetensors)"')


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A file of a repository on this machine."""

    path: str  # in the repository
    size: int
    link: Path


def repo_folder(repo: str, cache: Path | None = None) -> Path:
    """The folder of a repository, in the hub's cache or another one; it may not exist."""
    return (cache or config().hub_cache) / (_PREFIX + repo.replace("/", _SEPARATOR))


def is_in_repo(path: str) -> bool:
    """Whether a path in a cache is one of a repository's files."""
    return path.startswith(_PREFIX)


def repo_of(folder: Path) -> str | None:
    """The repository of a snapshot, `OWNER/REPO`; None for other folders."""
    snapshots = folder.parent
    name = snapshots.parent.name
    if snapshots.name != _SNAPSHOTS or not name.startswith(_PREFIX):
        return None
    return name.removeprefix(_PREFIX).replace(_SEPARATOR, "/", 1)


def find_cached(name: HubName) -> Choice[CachedFile] | None:
    """The model of a name, if all its files are in the cache."""
    found = (choose_for(name, files) for files in cached_files(name.repo))
    return next((choice for choice in found if choice), None)


def cached_files(repo: str, cache: Path | None = None) -> Iterator[list[CachedFile]]:
    """The files of a repository, of each snapshot in the hub's cache or another one."""
    for snapshot in _snapshots(repo_folder(repo, cache)):
        yield list(_files(snapshot))


def choose_for(name: HubName, files: list[CachedFile]) -> Choice[CachedFile] | None:
    """The model of a name among files of its repository."""
    with suppress(IngotError):  # it is not among them
        choices, where = choices_of(files), f"hf:{name.repo}"
        return choose(choices, name.quantization, name.file, available_memory(), where)[0]
    return None


def find_cached_checkpoint(repo: str) -> Path | None:
    """The folder of a repository's checkpoint, if all its files are in the cache."""
    return next((path for path, _ in _checkpoints(repo_folder(repo))), None)


def cached_models(cache: Path | None = None) -> Iterator[tuple[HubName, Choice[CachedFile]]]:
    """The models in the hub's cache or another one; each file once, in its newest snapshot."""
    for repo, folder in _repos(cache):
        seen: set[str] = set()
        for snapshot in _snapshots(folder):
            for choice in choices_of(_files(snapshot)):
                first = choice.files[0]
                if first.path not in seen:
                    seen.add(first.path)
                    yield HubName(repo, file=first.path), choice


def cached_checkpoints() -> Iterator[tuple[HubName, Path, int]]:
    """The checkpoints in the cache, once for each repository: name, folder and bytes."""
    for repo, folder in _repos():
        for path, checkpoint in _checkpoints(folder):
            yield HubName(repo), path, checkpoint.size
            break


def remove_cached(name: HubName) -> int:
    """Remove a model or a checkpoint from all snapshots; the bytes that this frees."""
    found = _removable(name)
    if not found:
        raise ModelNotFoundError(f"{name} is not in the hub's cache, {config().hub_cache}")
    if len(found) > 1:
        raise StoreError(f"{name} is several models; remove them one by one: {', '.join(found)}")
    (paths,) = found.values()
    return _unlink(repo_folder(name.repo), paths)


def remove_cached_checkpoint(snapshot: Path) -> int | None:
    """The same for the checkpoint of a snapshot; None if it is no snapshot of this cache."""
    repo = repo_of(snapshot)
    if repo is None or snapshot.parent.parent.resolve() != repo_folder(repo).resolve():
        return None
    checkpoint = checkpoint_files(_files(snapshot))
    if checkpoint is None:
        return None
    return _unlink(repo_folder(repo), {file.path for file in checkpoint.all})


def _unlink(folder: Path, paths: set[str]) -> int:
    """Remove files of a repository from all snapshots; a blob that has another name stays."""
    links = [snapshot / path for snapshot in _snapshots(folder) for path in sorted(paths)]
    sizes = {link.resolve(): link.stat().st_size for link in links if link.is_file()}
    for link in links:
        link.unlink(missing_ok=True)
        with suppress(OSError):  # a folder that has other files
            link.parent.rmdir()
    used = {link.resolve() for link in (folder / _SNAPSHOTS).rglob("*") if link.is_symlink()}
    gone = [blob for blob in sizes if blob not in used]
    for blob in gone:
        blob.unlink(missing_ok=True)
    return sum(sizes[blob] for blob in gone)


def _removable(name: HubName) -> dict[str, set[str]]:
    """What a name may mean: the paths of the files of each model, in any snapshot.

    A checkpoint beside GGUF files, which the name of the repository means, has that of its folder.
    """
    found: dict[str, set[str]] = {}
    checkpoints: dict[str, set[str]] = {}
    for snapshot in _snapshots(repo_folder(name.repo)):
        files = [*_files(snapshot)]
        for choice in choices_of(files):
            first = choice.files[0].path
            if name.file in (None, first) and (name.quantization or "").upper() in (
                "",
                choice.quantization,
            ):
                each = found.setdefault(str(HubName(name.repo, file=first)), set())
                each.update(file.path for file in choice.files)
        checkpoint = checkpoint_files(files)
        if checkpoint and name.file is None and name.quantization is None:
            each = checkpoints.setdefault(str(snapshot), set())
            each.update(file.path for file in checkpoint.all)
    if checkpoints and not found:
        return {str(name): set().union(*checkpoints.values())}
    return found | checkpoints


def _repos(cache: Path | None = None) -> Iterator[tuple[str, Path]]:
    """The repositories in a cache, and their folders."""
    for folder in sorted((cache or config().hub_cache).glob(f"{_PREFIX}*{_SEPARATOR}*")):
        yield folder.name.removeprefix(_PREFIX).replace(_SEPARATOR, "/", 1), folder


def _checkpoints(repo: Path) -> Iterator[tuple[Path, CheckpointFiles[CachedFile]]]:
    """The snapshots of a repository that hold a checkpoint with all its files."""
    for snapshot in _snapshots(repo):
        checkpoint = checkpoint_files(_files(snapshot))
        if checkpoint is not None and _is_whole(checkpoint):
            yield snapshot, checkpoint


def _is_whole(checkpoint: CheckpointFiles[CachedFile]) -> bool:
    """Whether all weights are here, and a vocabulary, which other tools may download later."""
    names = {file.path for file in checkpoint.weights}
    index = next((file.link for file in checkpoint.others if file.path == INDEX), None)
    if index is None:
        whole = not any(map(_PART.fullmatch, names))
    else:
        # The index of a large model has megabytes, and this runs for each listing: no JSON here.
        wanted = set(_WEIGHTS_OF_INDEX.findall(index.read_bytes()))
        whole = wanted <= {name.encode() for name in names}
    return whole and checkpoint.has_vocabulary


def _snapshots(repo: Path) -> list[Path]:
    """The snapshots of a repository: the one of `main`, then the newest first."""
    try:
        found = [path for path in (repo / _SNAPSHOTS).iterdir() if path.is_dir()]
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
