"""`ingot doctor`: what this machine can do, what slows it down, and which models it can run.

`report` documents the keys of `--json`.
"""

from typing import Annotated

import typer

from ingot.cli.shared.find_model import ModelOption, locate
from ingot.cli.shared.output import write_json


def command(
    model: ModelOption = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Measure again, even if the cache has a measurement."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what this machine can do, what slows it down, and how fast models will run.

    Speeds of memory and kernels are measured once, in a few seconds, and kept in the cache. With
    -m, the decode speed of a model is predicted from them and measured beside it.
    """
    from ingot.cli.doctor.report import as_json, diagnose  # noqa: PLC0415 (the engine)

    report = diagnose(None if model is None else locate(model), again=again)
    if json:
        write_json(as_json(report))
        return
    from ingot.cli.doctor.as_text import show  # noqa: PLC0415 (imports rich)

    show(report)
