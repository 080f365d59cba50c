"""`ingot inspect --architectures`: the supported architectures, as text or JSON.

JSON (`--json`): a list of objects with architecture (as files name it) and described (a sentence).
"""

import textwrap

from ingot.cli.shared.output import write_columns, write_json
from ingot.models import architectures, described

_WIDTH = 80  # of the sentences


def show_architectures(*, json: bool) -> None:
    """Print names and descriptions."""
    found = {name: described(name) for name in architectures()}
    if json:
        items = found.items()
        write_json([{"architecture": name, "described": text} for name, text in items])
        return
    rows: list[tuple[str, ...]] = []
    for name, text in found.items():
        first, *others = textwrap.wrap(text, _WIDTH)
        rows += [(name, first), *(("", line) for line in others)]
    write_columns(rows)
