"""The environment, read in one place.

| variable        | meaning                                                     |
|-----------------|-------------------------------------------------------------|
| `INGOT_ISA`     | instruction set to use: scalar, avx2, avx512, amx           |
| `INGOT_THREADS` | worker threads (default: the cores this process may use)    |
| `INGOT_CACHE`   | folder of fetched models (default: the user's cache folder) |
| `INGOT_API_KEY` | a key that requests to `ingot serve` must have              |
| `NO_COLOR`      | not empty: no colours and no bold text on a terminal        |
| `TERM`          | `dumb`: a terminal that only takes lines of plain text      |
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ingot import _native
from ingot.errors import ConfigError

MAX_THREADS = 1024


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of this process."""

    isa: str
    threads: int
    cache: Path
    api_key: str | None
    styles: bool  # text on a terminal may be coloured or bold
    dumb_terminal: bool  # nothing on it can be drawn over


def _threads() -> int:
    text = os.environ.get("INGOT_THREADS", "")
    if not text:
        return len(os.sched_getaffinity(0))
    if not text.isdecimal() or not 1 <= int(text) <= MAX_THREADS:
        raise ConfigError(f"INGOT_THREADS is {text!r}; it must be a number from 1 to {MAX_THREADS}")
    return int(text)


def _cache() -> Path:
    if text := os.environ.get("INGOT_CACHE"):
        return Path(text).expanduser()
    if text := os.environ.get("XDG_CACHE_HOME"):
        return Path(text) / "ingot"
    try:
        home = Path.home()
    except RuntimeError:  # a user without a name or HOME, as in a container
        home = Path("/")
    return home / ".cache" / "ingot"


def _isa() -> str:
    if name := os.environ.get("INGOT_ISA"):
        try:
            _native.set_isa(name)
        except ValueError as error:
            raise ConfigError(f"INGOT_ISA: {error}") from None
    return _native.active_isa()


@lru_cache(maxsize=1)
def config() -> Config:
    """Read the environment, once, and choose the instruction set."""
    dumb_terminal = os.environ.get("TERM") == "dumb"
    return Config(
        isa=_isa(),
        threads=_threads(),
        cache=_cache(),
        api_key=os.environ.get("INGOT_API_KEY") or None,
        styles=not (dumb_terminal or os.environ.get("NO_COLOR")),
        dumb_terminal=dumb_terminal,
    )


def child_environment(**changes: str) -> dict[str, str]:
    """This process's environment with some variables changed, for a program it starts."""
    return os.environ | changes
