"""Models on disk and in the world: find them by name, download them, list them, remove them.

A name comes in (`names` says which there are), a path goes out: of the model's first file, if it
has several, or of the folder of a checkpoint. `find` looks on this machine only. `resolve` also
downloads what is missing. `pull` downloads, or verifies what is there. Models that other tools have
downloaded are used where they are.

This package does not look inside a model, and prints nothing: it reports to a `Progress`. The
modules that download are imported on use, because most commands only look for a file.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ingot.config import config
from ingot.errors import ModelNotFoundError, StoreError
from ingot.store import default_model
from ingot.store.default_model import DEFAULT_MODEL as DEFAULT_MODEL
from ingot.store.default_model import WheelModel as WheelModel
from ingot.store.names import DEFAULT as DEFAULT
from ingot.store.names import (
    DefaultName,
    FileName,
    HubName,
    ModelName,
    OllamaName,
    WebName,
    parse_name,
)
from ingot.store.names import is_remote as is_remote
from ingot.store.progress import Progress, silent

if TYPE_CHECKING:
    from ingot.store.hub import FoundRepo
    from ingot.store.ollama_folder import Settings
    from ingot.store.other_tools import FoundModel
    from ingot.store.plan import Plan as Plan


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model on this machine: a split one under its first file, a checkpoint under its folder."""

    name: str  # which `find` takes
    path: Path
    size: int
    source: str = "ingot"  # whose folder it is in


def models_folder() -> Path:
    """The folder of downloaded models; it may not exist yet."""
    return config().cache / "models"


def find(name: str) -> Path | None:
    """The file of a model on this machine, or the folder of a checkpoint, or None."""
    return _find(parse_name(name))


def _find(name: ModelName) -> Path | None:
    match name:
        case DefaultName():
            return default_model.find_default(models_folder())
        case FileName():
            return _find_file(name.text)
        case HubName():
            return _find_repo(name)
        case WebName():
            from ingot.store.web_files import find_web  # noqa: PLC0415

            return find_web(name, models_folder() / "web")
        case OllamaName():
            from ingot.store.ollama_folder import find_ollama  # noqa: PLC0415

            return find_ollama(name)


def _find_repo(name: HubName) -> Path | None:
    from ingot.store.hub_cache import find_cached, find_cached_checkpoint  # noqa: PLC0415
    from ingot.store.other_tools import find_elsewhere  # noqa: PLC0415

    if choice := find_cached(name):
        return choice.files[0].link
    if found := find_elsewhere(name):
        return found.weights[0]
    return None if name.quantization or name.file else find_cached_checkpoint(name.repo)


def _elsewhere(name: ModelName) -> "FoundModel | None":
    """The model of a name, if it is in the folder of another tool and not in the hub's cache."""
    from ingot.store.hub_cache import find_cached  # noqa: PLC0415
    from ingot.store.other_tools import find_elsewhere  # noqa: PLC0415

    if not isinstance(name, HubName) or find_cached(name):
        return None
    return find_elsewhere(name)


def resolve(name: str, progress: Progress | None = None) -> Path:
    """What `find` finds, downloaded if it is missing and its name says where from."""
    parsed = parse_name(name)
    if path := _find(parsed):
        return _completed(parsed, path, progress)
    if isinstance(parsed, FileName):
        raise _unknown(parsed.text)
    return _pull(parsed, progress or silent)


def locate(name: str | os.PathLike[str], progress: Progress | None = None) -> Path:
    """The file of a model as `resolve` finds it; what is no known name is taken for a path."""
    if isinstance(name, str):
        parsed = parse_name(name)
        if path := _find(parsed):
            return _completed(parsed, path, progress)
        if not isinstance(parsed, FileName):
            return _pull(parsed, progress or silent)
    return Path(name).expanduser()


def _completed(name: ModelName, path: Path, progress: Progress | None) -> Path:
    """What was found, and what other tools left out of a checkpoint of the hub."""
    return _checkpoint(name, progress) if isinstance(name, HubName) and path.is_dir() else path


def pull(name: str = DEFAULT, progress: Progress | None = None) -> Path:
    """Download a model, or verify the one that is here, and return its path.

    Several processes may call this at once: one downloads, the others wait. A file appears under
    its name when it is complete; if the download is interrupted, the next one continues. A model
    that LM Studio or llama.cpp has is used there, and nobody is asked.
    """
    return _pull(parse_name(name), progress or silent)


def _pull(name: ModelName, report: Progress) -> Path:
    if isinstance(name, DefaultName):
        return default_model.pull_default(models_folder(), report)
    if found := _elsewhere(name):
        report(found.said, 0, 0)
        return found.weights[0]
    from ingot.store.plan import fetch  # noqa: PLC0415

    return fetch(_plan(name), report)


def checkpoint(name: str, progress: Progress | None = None) -> Path:
    """The folder of a checkpoint: the one given, or that of a repository of the hub.

    What is not in the hub's cache is downloaded.
    """
    parsed = parse_name(name)
    if isinstance(parsed, FileName):
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise ModelNotFoundError(f"{name!r} is not a folder; give one, or hf:OWNER/REPO")
        return folder
    if not isinstance(parsed, HubName) or parsed.quantization or parsed.file:
        raise StoreError(f"{name!r} is not a checkpoint: give a folder, or hf:OWNER/REPO")
    return _checkpoint(parsed, progress)


def _checkpoint(name: HubName, progress: Progress | None) -> Path:
    from ingot.store.hub_cache import find_cached_checkpoint  # noqa: PLC0415
    from ingot.store.whole_checkpoints import is_noted  # noqa: PLC0415

    cached = find_cached_checkpoint(name.repo)
    if cached and is_noted(name.repo, cached):
        return cached
    from ingot.store.hub import plan_checkpoint  # noqa: PLC0415
    from ingot.store.plan import fetch  # noqa: PLC0415

    try:
        plan = plan_checkpoint(name, commit=cached.name if cached else None)
        return fetch(plan, progress or silent)
    except (StoreError, OSError):
        if cached is None:
            raise
        return cached  # the hub cannot be asked or forgot this commit, or its cache is read-only


def checkpoint_to_quantize(name: str) -> str | None:
    """The `hf:OWNER/REPO` of `hf:OWNER/REPO:QUANT`, if its checkpoint is what can be used.

    None if a GGUF file of that name is on this machine. The hub is asked whether the repository has
    GGUF files if its checkpoint is not in the cache. None for all other names.
    """
    parsed = parse_name(name)
    if not isinstance(parsed, HubName) or not parsed.quantization or _find(parsed):
        return None
    from ingot.store.hub_cache import find_cached_checkpoint  # noqa: PLC0415

    if not find_cached_checkpoint(parsed.repo):
        from ingot.store.hub import has_only_checkpoint  # noqa: PLC0415

        if not has_only_checkpoint(parsed):
            return None
    return str(HubName(parsed.repo))


def checkpoint_name(folder: Path) -> str:
    """What the model of a checkpoint is called: like its repository, or like its folder."""
    from ingot.store.hub_cache import repo_of  # noqa: PLC0415

    folder = folder.resolve()
    repo = repo_of(folder)
    return folder.name if repo is None else repo.rpartition("/")[2]


def plan_pull(name: str) -> "Plan":
    """What `pull` would download; nothing is downloaded yet."""
    parsed = parse_name(name)
    if found := _elsewhere(parsed):
        from ingot.store.plan import plan_in_place  # noqa: PLC0415

        return plan_in_place(name, found.weights, found.others, found.said)
    return _plan(parsed)


def _plan(name: ModelName) -> "Plan":
    match name:
        case HubName():
            from ingot.store.hub import plan_hub  # noqa: PLC0415

            return plan_hub(name)
        case WebName():
            from ingot.store.web_files import plan_web  # noqa: PLC0415

            return plan_web(name, models_folder() / "web")
        case OllamaName():
            from ingot.store.ollama import plan_ollama  # noqa: PLC0415

            return plan_ollama(name)
        case DefaultName():
            return default_model.plan_default(models_folder())
        case FileName():
            raise StoreError(
                f"cannot pull {name.text!r}: use default, hf:OWNER/REPO, https://... or ollama:NAME"
            )


def search(words: str, limit: int = 20) -> "list[FoundRepo]":
    """Repositories of the hub with GGUF files, most downloaded first."""
    from ingot.store.hub import search_hub  # noqa: PLC0415

    return search_hub(words, limit)


def settings_of(path: Path) -> "Settings | None":
    """The template and parameters that ollama keeps beside a model."""
    from ingot.store.ollama_folder import settings_of  # noqa: PLC0415

    return settings_of(path)


def list_models() -> list[StoredModel]:
    """The models on this machine: Ingot's own first, then those of other tools."""
    from ingot.store.listing import all_models  # noqa: PLC0415

    return all_models(models_folder())


def remove(name: str) -> int:
    """Remove a model that Ingot or the hub's cache has; the number of bytes that this frees."""
    from ingot.store.removal import remove_model  # noqa: PLC0415

    return remove_model(parse_name(name), models_folder())


def _find_file(name: str) -> Path | None:
    path = Path(name).expanduser()
    if path.is_file() or is_checkpoint(path):
        return path
    if path.name != name:
        return None
    cached = (models_folder() / file for file in (name, f"{name}.gguf"))
    return next((path for path in cached if path.is_file()), None)


def is_checkpoint(path: Path) -> bool:
    """Whether a folder is one that `transformers` has saved."""
    return (path / "config.json").is_file() and any(path.glob("*.safetensors"))


def _unknown(name: str) -> StoreError:
    """The error for a name that nothing has."""
    from difflib import get_close_matches  # noqa: PLC0415

    if Path(name).expanduser().is_dir():
        return StoreError(f"{name!r} is a folder without a checkpoint; give a GGUF file in it")
    names = [model.name for model in list_models()]
    near = get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "see `ingot list`"
    if Path(name).name != name:
        hint = "check the path"
    return ModelNotFoundError(
        f"no model {name!r}: no such file, and not in {models_folder()}; {hint}"
    )
