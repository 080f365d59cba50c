"""Options that load LoRA adapters: `--lora`, `--lora-scaled`, `--lora-init-without-apply`."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from ingot.errors import ConfigError

_PANEL = "LoRA adapters"


class AdapterFields(TypedDict):
    """The fields of `EngineOptions` about adapters."""

    adapters: dict[str, Path] | None
    adapter_scales: dict[str, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFlags:
    """Adapters by name, and how much of each is added if a request does not say."""

    lora: Annotated[
        list[str] | None,
        typer.Option(
            "--lora",
            metavar="[NAME=]PATH,...",
            rich_help_panel=_PANEL,
            help="LoRA adapters: GGUF files, or folders of PEFT. May be repeated.",
        ),
    ] = None
    lora_scaled: Annotated[
        list[str] | None,
        typer.Option(
            "--lora-scaled",
            metavar="[NAME=]PATH:SCALE,...",
            rich_help_panel=_PANEL,
            help="The same with a scale. May be repeated.",
        ),
    ] = None
    lora_init_without_apply: Annotated[
        bool,
        typer.Option(
            "--lora-init-without-apply",
            rich_help_panel=_PANEL,
            help="Load the adapters, and use them only in requests that name them.",
        ),
    ] = False

    def fields(self) -> AdapterFields:
        """What the engine loads, and the scales of requests that choose none."""
        found: dict[str, tuple[Path, float]] = {}
        plain = [(given, 1.0) for given in _each(self.lora)]
        for given, scale in [*plain, *map(_scaled, _each(self.lora_scaled))]:
            name, path = _named(given)
            if name in found:
                raise ConfigError(f"two adapters have the name {name!r}; use NAME=PATH")
            found[name] = (path, scale)
        if not found:
            return {"adapters": None, "adapter_scales": None}
        scales = {name: scale for name, (_, scale) in found.items()}
        return {
            "adapters": {name: path for name, (path, _) in found.items()},
            "adapter_scales": {} if self.lora_init_without_apply else scales,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterLoadingFlags:
    """Whether clients of a server may load adapters."""

    folder: Annotated[
        Path | None,
        typer.Option(
            "--allow-adapter-loading",
            metavar="FOLDER",
            rich_help_panel=_PANEL,
            help="Let clients load the adapters of a folder, and unload adapters. [they may not]",
        ),
    ] = None


def parse_scaled(given: str) -> tuple[str, float]:
    """Split `PATH[:SCALE]`; without a scale it is 1."""
    path, separator, scale = given.rpartition(":")
    if not separator or _exists(given):
        return given, 1.0
    try:
        factor = float(scale)
    except ValueError:
        return given, 1.0
    if not math.isfinite(factor):
        raise ConfigError(f"the scale of {path} is {scale}; it must be a finite number")
    return path, factor


def _each(options: list[str] | None) -> list[str]:
    """The adapters of repeated options, in each of which commas separate several.

    A comma in the name of a file that exists separates nothing.
    """
    found = []
    for given in options or ():
        path = given.partition("=")[2] or given
        whole = (given, path, path.rpartition(":")[0] or path)
        is_one = any(map(_exists, whole))
        found += [given] if is_one else given.split(",")
    return found


def _exists(place: str) -> bool:
    """Whether there is such a file; a long list of adapters is no name that a file can have."""
    try:
        return Path(place).exists()
    except OSError:
        return False


def _scaled(given: str) -> tuple[str, float]:
    """Split `PATH:SCALE`."""
    path, _, scale = given.rpartition(":")
    try:
        return path, float(scale)
    except ValueError:
        raise ConfigError(f"--lora-scaled is {given!r}; it must be PATH:SCALE") from None


def _named(given: str) -> tuple[str, Path]:
    """Split `NAME=PATH`; by default the name is that of the file or folder."""
    name, separator, path = given.partition("=")
    if separator and not _exists(given):
        if not name or not path:
            raise ConfigError(f"the adapter {given!r} must be NAME=PATH or PATH")
        return name, Path(path)
    return Path(given).name.removesuffix(".gguf"), Path(given)
