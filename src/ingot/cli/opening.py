"""Opening a model for a command: a bar while its weights go to a GPU, and what became of them."""

from pathlib import Path
from typing import Any

from ingot.api import LLM
from ingot.bar import Bar
from ingot.engine.placing import GpuLayers, OnGpu
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


def gpu_remark(gpu: OnGpu) -> str:
    """What a GPU has of a model, in a few words."""
    layers = "all" if gpu.whole else f"{gpu.layers} of {gpu.of_layers}"
    decoded = f"; {', '.join(gpu.decoded)} decoded to half floats" if gpu.decoded else ""
    return (
        f"{layers} layers on {gpu.device}, {gpu.sent / 1e9:.2f} GB sent at {gpu.rate / 1e9:.1f} "
        f"GB/s, {gpu.allocations} device allocations of {gpu.allocated / 2**30:.1f} GiB{decoded}"
    )
