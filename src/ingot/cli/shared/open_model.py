"""Open a model for a command: a progress bar for the GPU upload, and a notice of where it runs."""

from pathlib import Path
from typing import Unpack

from ingot.api import LLM
from ingot.bar import Bar
from ingot.cli.shared.output import notice
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.model.placement import GpuLayers
from ingot.engine.options import EngineFields
from ingot.errors import ConfigError


class UploadBar(Bar):
    """Shows how much of the weights is on the GPU."""

    def __init__(self) -> None:
        super().__init__("uploading weights to the GPU", "MiB")

    def __call__(self, done: int, total: int) -> None:
        """Show `done` of `total` bytes."""
        super().__call__(done >> 20, total >> 20)


def open_llm(path: Path, **options: Unpack[EngineFields]) -> LLM:
    """Open an `LLM`, with a progress bar if its weights go to a GPU."""
    with UploadBar() as bar:
        return LLM(path, progress=bar, **options)


def parse_gpu_layers(text: str | None) -> GpuLayers:
    """The value of `--gpu-layers`: a number, "auto" or None."""
    if text is None or text == "auto":
        return "auto" if text else None
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"--gpu-layers is {text!r}; it must be a number or auto")
    return int(text)


def show_placement(model: LoadedModel) -> None:
    """Say where a model runs, if a GPU was an option."""
    if model.placement is not None:
        notice(model.placement)
