"""The table of operations on the CPU: every instruction set against the reference in float64."""

from pathlib import Path

import pytest

from ingot.graph.kv_type import KvType
from ops.case import Case
from ops.cpu import check
from ops.table import TABLE


@pytest.mark.parametrize("case", [c for c in TABLE if c.kv_type is not KvType.FP8], ids=str)
def test_operation(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)
