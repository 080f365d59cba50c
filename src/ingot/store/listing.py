"""All models on this machine, whoever downloaded them."""

from collections.abc import Iterator
from pathlib import Path

from ingot.config import config
from ingot.store import StoredModel
from ingot.store.hub_cache import cached_checkpoints, cached_models
from ingot.store.ollama_folder import ollama_models, own_folder
from ingot.store.other_tools import found_models
from ingot.store.quantizations import split_stem
from ingot.store.web_files import web_models


def all_models(folder: Path) -> list[StoredModel]:
    """Those of Ingot's folder by name, then those of other tools."""
    return [*_own(folder), *_others()]


def _own(folder: Path) -> Iterator[StoredModel]:
    sizes: dict[str, int] = {}
    for path in folder.glob("*.gguf"):
        if path.is_file():
            split = split_stem(path.name)
            name = f"{split[0]}-00001-of-{split[2]:05}.gguf" if split else path.name
            sizes[name] = sizes.get(name, 0) + path.stat().st_size
    for name in sorted(sizes):
        yield StoredModel(name, folder / name, sizes[name])
    for url, paths in web_models(folder / "web"):
        yield StoredModel(str(url), paths[0], sum(path.stat().st_size for path in paths))
    for ollama, path, size in ollama_models(own_folder()):
        yield StoredModel(str(ollama), path, size)


def _others() -> Iterator[StoredModel]:
    cached, found = list(cached_models()), list(found_models())
    names = [name for name, _ in cached] + [model.name for model in found if model.name]
    with_files = {name.repo for name in names}
    for name, choice in cached:
        yield StoredModel(str(name), choice.files[0].link, choice.size, "hub")
    for name, folder, size in cached_checkpoints():
        said = str(folder) if name.repo in with_files else str(name)  # the name means a file
        yield StoredModel(said, folder, size, "hub")
    for place in config().ollama_folders:
        for ollama, path, size in ollama_models(place):
            yield StoredModel(str(ollama), path, size, "ollama")
    taken = {name for name, _ in cached}
    for model in found:
        path, said = model.weights[0], str(model.weights[0])
        if model.name and model.name not in taken:
            taken.add(model.name)
            said = str(model.name)
        yield StoredModel(said, path, model.choice.size, model.tool)
