"""docs/migration.md: its tables are true."""

import inspect
import re
from pathlib import Path

from ingot import errors
from ingot.cli.serve import command
from ingot.engine import EngineOptions
from ingot.errors import IngotError
from ingot.server.errors import error_info

PAGE = (Path(__file__).parents[2] / "docs" / "migration.md").read_text()


def test_every_error_is_listed_with_its_status() -> None:
    rows = re.findall(r"^\| `(\w+Error)` \|.*\| (\d+) \| (?:`(\w+)`)? ?\|$", PAGE, re.M)
    classes = {
        name: kind
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, IngotError) and kind is not IngotError
    }
    assert {name for name, *_ in rows} == classes.keys()
    for name, status, code in rows:
        if "__init__" not in vars(classes[name]):  # it takes a message
            info = error_info(classes[name]("x"))
            assert (info.status, info.code or "") == (int(status), code), name


def test_the_options_that_it_names_exist() -> None:
    server = PAGE[PAGE.index("## Command line") : PAGE.index("## A tool call")]
    last = [row.split("|")[-2] for row in server.splitlines() if row.startswith("| ")]
    flags = {
        name
        for parameter in inspect.signature(command).parameters.values()
        for extra in getattr(parameter.annotation, "__metadata__", ())
        for name in (extra.default, *(extra.param_decls or ()))
    }
    assert set(re.findall(r"--[a-z-]+", " ".join(last))) <= flags
    python = PAGE[PAGE.index("## Python") : PAGE.index("## Command line")]
    named = set(re.findall(r"\b([a-z_]+)=", " ".join(re.findall(r"\|([^|]*)\|$", python, re.M))))
    engine = named & set(EngineOptions.__dataclass_fields__)
    assert {"context", "device", "gpu_layers", "threads", "kv_type", "draft"} <= engine
