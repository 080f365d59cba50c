"""A block format and an operation touch the files that CONTRIBUTING.md names, and then they work.

Both are added to one copy of the sources, because compiling it takes minutes.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from contributing import throw_away_format, throw_away_operation
from contributing.changed_tree import Change, ChangedTree

pytestmark = pytest.mark.oracle


@dataclass(frozen=True)
class Compiled:
    """A copy with both, compiled."""

    tree: ChangedTree
    format: Change
    operation: Change


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    tree = ChangedTree(tmp_path_factory.mktemp("copy"))
    made = Compiled(
        tree, throw_away_format.add_format(tree), throw_away_operation.add_operation(tree)
    )
    tree.build_native()
    return made


def test_a_format_is_a_header_and_a_class(compiled: Compiled, tmp_path: Path) -> None:
    assert len(compiled.format.files) == 3
    compiled.tree.run(throw_away_format.RUN, tmp_path)
    if find_spec("torch") and find_spec("triton"):
        compiled.tree.run(throw_away_format.ON_A_GPU)


def test_an_operation_is_known_in_four_places_and_has_cases(
    compiled: Compiled, tmp_path: Path
) -> None:
    assert compiled.operation.files == {
        "src/ingot/graph/ops/rows.py",
        "src/ingot/backends/reference/rows.py",
        "native/executor/ops.h",
        "native/executor/ops.cpp",
        "native/bindings/ops_rows.cpp",
        "tests/ops/rows.py",
    }
    compiled.tree.run(throw_away_operation.RUN, tmp_path)
    if find_spec("torch") and find_spec("triton"):
        compiled.tree.run(throw_away_operation.ON_A_GPU)
