"""Remove a model: from Ingot's own folder or the hub's cache, never from other tools' folders."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from ingot.config import config
from ingot.errors import ModelNotFoundError, StoreError
from ingot.files import remove_file
from ingot.store import default_model
from ingot.store.hub_cache import remove_cached, remove_cached_checkpoint
from ingot.store.names import DefaultName, FileName, HubName, ModelName, OllamaName, WebName
from ingot.store.ollama_folder import layers_in, own_folder, remove_ollama
from ingot.store.other_tools import find_elsewhere
from ingot.store.quantizations import split_stem
from ingot.store.web_files import find_web


def remove_model(name: ModelName, folder: Path) -> int:
    """Remove a model and return how many bytes that frees."""
    match name:
        case HubName():
            try:
                return remove_cached(name)
            except ModelNotFoundError:
                if found := find_elsewhere(name):
                    raise StoreError(
                        f"{name} belongs to {found.tool}; remove it there: {found.weights[0]}"
                    ) from None
                raise
        case WebName():
            if path := find_web(name, folder / "web"):
                size = _bytes(path.parent.iterdir())
                shutil.rmtree(path.parent)
                return size
            raise ModelNotFoundError(f"{name} is not in {folder / 'web'}")
        case OllamaName():
            if layers_in(own_folder(), name):
                return remove_ollama(name)
            if any(layers_in(other, name) for other in config().ollama_folders):
                said = str(name).removeprefix("ollama:")
                raise StoreError(f"{name} belongs to ollama; remove it with `ollama rm {said}`")
            raise ModelNotFoundError(f"{name} is not in {own_folder()}")
        case DefaultName():
            return _remove_file(default_model.DEFAULT_MODEL.file, folder)
        case FileName():
            return _remove_file(name.text, folder)


def _remove_file(name: str, folder: Path) -> int:
    """Remove a file of Ingot's folder, with the others of a split model, or a cached checkpoint."""
    for file in (name, f"{name}.gguf"):
        if Path(name).name == name and (folder / file).is_file():
            paths = [folder / file]
            if split := split_stem(file):
                stem, _, count = split
                parts = (f"{stem}-{part:05}-of-{count:05}.gguf" for part in range(1, count + 1))
                paths = [path for part in parts if (path := folder / part).is_file()]
            size = _bytes(paths)
            for path in paths:
                remove_file(path)
            return size
    freed = remove_cached_checkpoint(Path(name))
    if freed is not None:
        return freed
    if Path(name).is_file():
        raise StoreError(f"{name!r} is not in {folder}; remove the file yourself")
    raise ModelNotFoundError(f"no model {name!r} in {folder}; see `ingot list`")


def _bytes(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths)
