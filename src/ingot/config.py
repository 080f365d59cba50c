"""Settings from environment variables. No other module reads the environment.

| variable          | meaning                                                     |
|-------------------|-------------------------------------------------------------|
| `INGOT_ISA`       | instruction set to use, as `ingot info` lists them          |
| `INGOT_THREADS`   | CPU threads (default: the physical cores of this process)   |
| `INGOT_PRECISION` | how far the CPU rounds inputs: fast (default) or exact      |
| `INGOT_CACHE`     | folder for downloads (default: ingot in the user's cache)   |
| `HF_HUB_CACHE`    | the hub's cache (default: hub in `HF_HOME`)                 |
| `HF_HOME`         | default: huggingface in ~/.cache                            |
| `OLLAMA_MODELS`   | ollama's models (default: where ollama keeps them)          |
| `LLAMA_CACHE`     | llama.cpp's cache (default: llama.cpp in the user's cache)  |
| `INGOT_API_KEY`   | API key that clients of `ingot serve` must send             |
| `NO_COLOR`        | not empty: no colours and no bold text in the terminal      |
| `TERM`            | `dumb`: the terminal shows only plain lines                 |
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ingot import _native
from ingot.errors import ConfigError
from ingot.machine import caches_under, default_threads

MAX_THREADS = 1024


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of this process."""

    isa: str
    threads: int
    precision: str
    cache: Path
    hub_cache: Path
    ollama_folders: tuple[Path, ...]
    lm_studio_homes: tuple[Path, ...]
    llama_cpp_cache: Path
    api_key: str | None
    styles: bool  # colours and bold text are allowed
    dumb_terminal: bool  # the terminal cannot overwrite a line


def _threads() -> int:
    text = os.environ.get("INGOT_THREADS", "")
    if not text:
        return default_threads()
    if not text.isdecimal() or not 1 <= int(text) <= MAX_THREADS:
        raise ConfigError(f"INGOT_THREADS is {text!r}; it must be a number from 1 to {MAX_THREADS}")
    return int(text)


def _precision() -> str:
    text = os.environ.get("INGOT_PRECISION") or "fast"
    if text not in ("fast", "exact"):
        raise ConfigError(f"INGOT_PRECISION is {text!r}; it must be 'fast' or 'exact'")
    return text


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user without a home directory, as in some containers
        return Path("/")


def _folder(variable: str, default: Path) -> Path:
    return Path(text).expanduser() if (text := os.environ.get(variable)) else default


def _ollama_folders() -> tuple[Path, ...]:
    if text := os.environ.get("OLLAMA_MODELS"):
        return (Path(text).expanduser(),)
    return (_home() / ".ollama/models", Path("/usr/share/ollama/.ollama/models"))


def _isa() -> str:
    if name := os.environ.get("INGOT_ISA"):
        try:
            _native.set_isa(name)
        except ValueError as error:
            raise ConfigError(f"INGOT_ISA: {error}") from None
    return _native.active_isa()


@lru_cache(maxsize=1)
def config() -> Config:
    """The settings; the first call reads the environment and selects the instruction set."""
    dumb_terminal = os.environ.get("TERM") == "dumb"
    caches = _folder("XDG_CACHE_HOME", caches_under(_home()))
    hidden = _folder("XDG_CACHE_HOME", _home() / ".cache")  # of programs that do so everywhere
    return Config(
        isa=_isa(),
        threads=_threads(),
        precision=_precision(),
        cache=_folder("INGOT_CACHE", caches / "ingot"),
        hub_cache=_folder("HF_HUB_CACHE", _folder("HF_HOME", hidden / "huggingface") / "hub"),
        ollama_folders=_ollama_folders(),
        lm_studio_homes=(_home() / ".lmstudio", hidden / "lm-studio"),
        llama_cpp_cache=_folder("LLAMA_CACHE", caches / "llama.cpp"),
        api_key=os.environ.get("INGOT_API_KEY") or None,
        styles=not (dumb_terminal or os.environ.get("NO_COLOR")),
        dumb_terminal=dumb_terminal,
    )


def is_set(variable: str) -> bool:
    """Whether an environment variable is set, such as the one with which a shell completes."""
    return variable in os.environ


def child_environment(**changes: str) -> dict[str, str]:
    """The environment for a child process: this process's own with some changes."""
    return os.environ | changes
