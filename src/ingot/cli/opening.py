"""Opening a model for a command: a bar while its weights go to a GPU, and where it runs then."""

from pathlib import Path
from typing import Any

from ingot.api import LLM
from ingot.bar import Bar
from ingot.cli.text import notice
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.model.placement import GpuLayers
from ingot.errors import ConfigError


class UploadBar(Bar):
    """Shows how much of the weights has been sent."""

    def __init__(self) -> None:
        super().__init__("sending the weights to the GPU", "MiB")

    def __call__(self, done: int, total: int) -> None:
        """Show `done` of `total` bytes."""
        super().__call__(done >> 20, total >> 20)


def open_llm(path: Path, **options: Any) -> LLM:
    """An `LLM`; `options` are its own, `gpu_layers` as it was typed."""
    options["gpu_layers"] = asked_layers(options["gpu_layers"])
    with UploadBar() as bar:
        return LLM(path, progress=bar, **options)


def asked_layers(text: str | None) -> GpuLayers:
    """What `--gpu-layers` says."""
    if text is None or text == "auto":
        return "auto" if text else None
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"--gpu-layers is {text!r}; it must be a number or auto")
    return int(text)


def tell_placement(model: LoadedModel) -> None:
    """Say where a model runs, if that may have been a GPU."""
    if model.placement is not None:
        notice(model.placement)
