"""Checkpoints of `transformers` as GGUF files: safetensors in, GGUF out.

`open_model` opens a file or a checkpoint. `locate_quantized` makes a quantized file of a checkpoint
in the cache, for names like `FOLDER:Q4_K_M`. `list_models` lists what can be run. The modules that
convert are imported on use, because most models are files. Memory stays small whatever the size of
the model, because tensors are mapped and read in pieces. Names and orders of tensors are stated in
`ingot.models`, one file per architecture.
"""

import os
from pathlib import Path

from ingot import store
from ingot.errors import ConversionError
from ingot.gguf import GgufLoader
from ingot.store import StoredModel, is_checkpoint
from ingot.store.progress import Progress, silent


def locate_quantized(name: str | os.PathLike[str], progress: Progress | None = None) -> Path | None:
    """The quantized file of a name like `FOLDER:TYPE`; None if a name is no such name.

    `hf:OWNER/REPO:TYPE` is one if the repository has a checkpoint and no GGUF file; the checkpoint
    is downloaded if it is missing.
    """
    folder, colon, type = os.fspath(name).rpartition(":")
    if not colon or Path(name).exists():
        return None
    if not is_checkpoint(Path(folder).expanduser()):
        if not isinstance(name, str) or "/" not in folder or "/" in type:
            return None
        from ingot.convert.quantized import quantized_repository  # noqa: PLC0415

        return quantized_repository(name, progress or silent)
    from ingot.convert.quantized import quantized_file  # noqa: PLC0415

    return quantized_file(Path(folder).expanduser(), type, progress or silent)


def list_models() -> list[StoredModel]:
    """The models of the store that can be run.

    In the hub's cache other tools keep checkpoints of pictures and voices, too; these are left out.
    """
    return [
        model
        for model in store.list_models()
        if not model.path.is_dir() or checkpoint_summary(model.path) is not None
    ]


def checkpoint_summary(folder: Path) -> tuple[str, str] | None:
    """The architecture of a checkpoint and the type of its weights; None if it is not known.

    Only headers are read.
    """
    from ingot.convert.conversion import summary  # noqa: PLC0415

    try:
        return summary(folder)
    except (ConversionError, OSError):
        return None


def open_model(path: str | os.PathLike[str], *, mapped: bool = True) -> GgufLoader:
    """The model of a file, or of a checkpoint without writing a file.

    Of a checkpoint, tensors that need no change are views of its files; the others are made in
    memory when they are used. Without `mapped`, a file's tensors are read into memory.
    """
    if Path(path).is_dir():
        from ingot.convert.conversion import plan  # noqa: PLC0415

        return plan(Path(path)).open()
    return GgufLoader(path, mapped=mapped)
