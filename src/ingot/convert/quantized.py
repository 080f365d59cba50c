"""A checkpoint that runs quantized: `FOLDER:TYPE` is written once and kept in the cache.

In: a folder or the name of a repository, and a type. Out: the path of a GGUF file in the folder of
downloaded models, where `ingot list` and `ingot remove` know it. Its name says from which state of
the checkpoint it was made; when the checkpoint changes, the next one takes its place.
"""

from hashlib import sha256
from pathlib import Path

from ingot.convert.conversion import plan
from ingot.errors import FileWriteError, QuantError
from ingot.quantize.mixes import mix_of
from ingot.store import checkpoint, checkpoint_name, checkpoint_to_quantize, models_folder
from ingot.store.hub_cache import repo_of
from ingot.store.progress import Progress

_DIGITS = 8  # of each checksum in a name


def quantized_repository(name: str, progress: Progress) -> Path | None:
    """The file of `hf:OWNER/REPO:TYPE`, if the checkpoint of that repository is to be quantized.

    None if a GGUF file is, or may be, what the name means: it comes from `store.resolve`.
    """
    type = name.rpartition(":")[2]
    try:
        mix = mix_of(type)
    except QuantError:  # `UD-Q4_K_XL`: only a file can be that
        return None
    repository = checkpoint_to_quantize(name)
    if repository is None:
        return None
    if mix.needs_imatrix:  # said before anything is downloaded
        raise QuantError(
            f"{type} needs an importance matrix: convert the checkpoint with `ingot convert "
            f"{repository}`, and use `ingot quantize --imatrix`"
        )
    return quantized_file(checkpoint(repository, progress), type, progress)


def quantized_file(folder: Path, type: str, progress: Progress) -> Path:
    """The file of a checkpoint as a type or mix; written if it is not in the cache."""
    folder, cache, mix = folder.resolve(), models_folder(), mix_of(type)
    name = checkpoint_name(folder)
    place = repo_of(folder) or str(folder)  # each commit of a repository has a folder of its own
    stem = f"{name}-{mix.name}-{_digest(place)}"
    path = cache / f"{stem}-{_digest(_state(folder))}.gguf"
    if path.is_file():
        return path
    conversion = plan(folder, type)
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = "cannot be created; set INGOT_CACHE to another folder"
        raise FileWriteError(cache, problem, error) from error
    stage = f"quantizing {name} to {mix.name}"
    conversion.write(path, lambda done, total: progress(stage, done, total))
    for old in cache.glob(f"{stem}-*.gguf"):
        if old != path:
            old.unlink(missing_ok=True)
    return path


def _state(folder: Path) -> str:
    """What changes if a file of the checkpoint does."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".safetensors", ".model", ".tiktoken", ".jinja"):
            stat = path.stat()
            found.append(f"{path.name} {stat.st_size} {stat.st_mtime_ns}")
    return "\n".join(found)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
