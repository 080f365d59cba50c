"""docs/sampling.md: its plots and its order are those of the code."""

import re
import runpy
from pathlib import Path

import pytest

from ingot.sampling.order import DEFAULT_ORDER

DOCS = Path(__file__).resolve().parents[3] / "docs"
MADE: dict[str, str] = runpy.run_path(str(DOCS / "plots" / "make_sampler_plots.py"))["pictures"]()


@pytest.mark.parametrize("name", MADE)
def test_plots_are_up_to_date(name: str) -> None:
    committed = (DOCS / "plots" / name).read_text()
    assert committed == MADE[name], "run docs/plots/make_sampler_plots.py"


def test_every_plot_is_shown() -> None:
    shown = re.findall(r"\(plots/(\w+\.svg)\)", (DOCS / "sampling.md").read_text())
    assert sorted(shown) == sorted(MADE)


def test_the_order_is_that_of_the_code() -> None:
    text = (DOCS / "sampling.md").read_text()
    listed = text.partition("## The order")[2].partition("By default")[0]
    names = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\d+\. (.*)$", listed, re.M)))
    assert [name for name in names if name in DEFAULT_ORDER] == list(DEFAULT_ORDER)
