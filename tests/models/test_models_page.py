"""The table of docs/models.md is what its script writes."""

import re
import runpy
from pathlib import Path

from ingot.models import architectures

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_is_fresh() -> None:
    """All but the measured column, which may differ from machine to machine."""
    script = runpy.run_path(str(DOCS / "make_models_table.py"))
    text = (DOCS / "models.md").read_text()
    measured = dict(re.findall(r"^\| `([\w-]+)` \|.*\| (\de-\d\d) \|$", text, re.MULTILINE))
    assert sorted(measured) == architectures()
    assert script["page"](text, measured) == text
    assert all(float(worst) <= 1e-4 for worst in measured.values())
