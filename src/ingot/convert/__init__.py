"""Checkpoints of `transformers` as GGUF files: safetensors in, GGUF out.

`open_model` opens a file or a checkpoint. `locate_quantized` makes a quantized file of a checkpoint
in the cache, for names like `FOLDER:Q4_K_M`. The modules that convert are imported on use, because
most models are files. Memory stays small whatever the size of the model, because tensors are mapped
and read in pieces. Names and orders of tensors are stated in `ingot.models`, one file per
architecture.
"""

import os
from pathlib import Path

from ingot.gguf import GgufLoader
from ingot.store import is_checkpoint
from ingot.store.progress import Progress, silent


def locate_quantized(name: str | os.PathLike[str], progress: Progress | None = None) -> Path | None:
    """The quantized file of a name like `FOLDER:TYPE`; None if a name is no such name."""
    folder, colon, type = os.fspath(name).rpartition(":")
    if not colon or Path(name).exists() or not is_checkpoint(Path(folder).expanduser()):
        return None
    from ingot.convert.quantized import quantized_file  # noqa: PLC0415

    return quantized_file(Path(folder).expanduser(), type, progress or silent)


def open_model(path: str | os.PathLike[str], *, mapped: bool = True) -> GgufLoader:
    """The model of a file, or of a checkpoint without writing a file.

    Of a checkpoint, tensors that need no change are views of its files; the others are made in
    memory when they are used. Without `mapped`, a file's tensors are read into memory.
    """
    if Path(path).is_dir():
        from ingot.convert.conversion import plan  # noqa: PLC0415

        return plan(Path(path)).open()
    return GgufLoader(path, mapped=mapped)
