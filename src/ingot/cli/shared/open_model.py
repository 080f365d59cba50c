"""Open a model for a command: a progress bar for the GPU upload, and notices of where it runs."""

from pathlib import Path
from typing import Self, TypedDict, Unpack, cast

from ingot.api import LLM
from ingot.backends.backend import Stage
from ingot.bar import Bar
from ingot.cli.shared.find_model import locate
from ingot.cli.shared.output import notice
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.model.placement import GpuLayers
from ingot.engine.options import EngineFields, Speculation
from ingot.errors import ConfigError

_WORTH_SAYING = 64 << 20  # bytes; less is lost in what the process takes anyway


class OpeningBar:
    """Shows how far a GPU is made ready, stage by stage; for a `with` block."""

    def __init__(self) -> None:
        self._bars = {
            Stage.WEIGHTS: Bar(Stage.WEIGHTS, "MiB"),
            Stage.KERNELS: Bar(Stage.KERNELS, "kernels"),
            Stage.STEPS: Bar(Stage.STEPS, "sizes"),
        }

    def __call__(self, stage: Stage, done: int, total: int) -> None:
        """Show `done` of `total` of a stage."""
        for other, bar in self._bars.items():
            if other is not stage:
                bar.clear()
        shift = 20 if stage is Stage.WEIGHTS else 0
        self._bars[stage](done >> shift, total >> shift)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for bar in self._bars.values():
            bar.clear()


def open_llm(path: Path, **options: Unpack[EngineFields]) -> LLM:
    """Open an `LLM`, with progress bars if it runs on a GPU."""
    with OpeningBar() as bar:
        return LLM(path, progress=bar, **options)


def parse_gpu_layers(text: str | None) -> GpuLayers:
    """The value of `--gpu-layers`: a number, "auto" or None."""
    if text is None or text == "auto":
        return "auto" if text else None
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"--gpu-layers is {text!r}; it must be a number or auto")
    return int(text)


def parse_gpu_split(text: str | None) -> tuple[float, ...] | None:
    """The value of `--gpu-split`: numbers with commas between them, or None."""
    if text is None:
        return None
    try:
        return tuple(float(share) for share in text.split(","))
    except ValueError:
        raise ConfigError(
            f"--gpu-split is {text!r}; it must be a number for each GPU, such as 1,1"
        ) from None


class GuessFields(TypedDict):
    """The fields of `EngineOptions` about guesses."""

    speculation: Speculation
    draft: Path | None


def guess_fields(speculation: str, draft: str | None) -> GuessFields:
    """The values of `--speculation` and `--draft`."""
    return {
        "speculation": cast("Speculation", speculation),
        "draft": None if draft is None else locate(draft),
    }


def full_context(llm: LLM) -> str:
    """Why a text cannot continue, and what would let it."""
    allowed = llm.graph.context_length
    more = f"; the model allows {allowed} (--context)" if allowed > llm.context else ""
    return f"the context of {llm.context} tokens is full{more}"


def show_placement(model: LoadedModel) -> None:
    """Say where a model runs, if a GPU was an option, and which memory copies are going to take."""
    if model.placement is not None:
        notice(model.placement)
    if model.copies is not None and model.copies.size >= _WORTH_SAYING:
        notice(model.copies.remark)
