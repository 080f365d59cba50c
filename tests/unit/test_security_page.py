"""SECURITY.md: its table of limits says what the code does."""

import importlib
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "SECURITY.md").read_text()
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([\w.]+):([\w.]+)` \| [^|]+ \|$", PAGE, re.M)
UNITS = {
    "": 1,
    "s": 1,
    "KiB": 1 << 10,
    "Ki": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "Mi": 1 << 20,
}


def said(default: str) -> float | None:
    """A default as the page has it: a number and a unit."""
    if default == "none":
        return None
    number, _, unit = default.partition(" ")
    return float(number.replace(",", "")) * UNITS[unit]


def in_code(module: str, name: str) -> float | None:
    """The same in the code: a constant, or the default of a dataclass's field."""
    owner, _, field = name.partition(".")
    found = getattr(importlib.import_module(module), owner)
    if not field:
        return found
    assert is_dataclass(found)
    (default,) = [one.default for one in fields(found) if one.name == field]
    return default


@pytest.mark.parametrize(("limit", "default", "module", "name"), ROWS, ids=[r[0] for r in ROWS])
def test_a_limit_has_the_default_it_is_said_to_have(
    limit: str, default: str, module: str, name: str
) -> None:
    assert in_code(module, name) == said(default), limit


def test_every_row_of_the_table_is_compared() -> None:
    table = PAGE.partition("## Limits")[2].partition("\n## ")[0]
    assert len(ROWS) == len(re.findall(r"^\|", table, re.M)) - 2
