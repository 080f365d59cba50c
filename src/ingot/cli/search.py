"""`ingot search`: find models on the hub."""

from typing import Annotated

import typer

from ingot import store
from ingot.cli.shared.output import notice, printable, quantity, write_columns, write_json


def command(
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="Words in the name.")],
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000, help="How many.")] = 20,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find models with GGUF files on the hub, most downloaded first.

    `ingot pull hf:NAME` downloads one, `ingot run -m hf:NAME` runs it.
    """
    found = store.search(" ".join(words), limit)
    if json:
        write_json([{key: getattr(repo, key) for key in repo.__slots__} for repo in found])
    elif not found:
        notice("the hub has no such model with GGUF files")
    else:
        rows = [
            (f"hf:{printable(repo.name)}", quantity(repo.downloads), str(repo.likes), repo.updated)
            for repo in found
        ]
        write_columns([("NAME", "DOWNLOADS", "LIKES", "UPDATED"), *rows], right=(1, 2))
