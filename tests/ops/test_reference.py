"""The table of operations in the reference: float32 is near float64, and fusion changes nothing."""

from pathlib import Path

import numpy as np
import pytest

from ingot.backends.reference import Reference
from ingot.graph.fusion import fuse
from ingot.graph.kv_type import KvType
from ops.case import Case
from ops.fused_reference import FusedReference
from ops.small_graph import assert_near
from ops.table import TABLE

FLOAT = 2e-4


@pytest.mark.parametrize("case", [c for c in TABLE if c.kv_type is KvType.F32], ids=str)
def test_operation(case: Case, tmp_path: Path) -> None:
    with case.opened(tmp_path) as (graph, model):
        exact = Reference(graph, model, np.float64).forward(case.ids).astype(np.float64)
        assert_near(Reference(graph, model).forward(case.ids), exact, FLOAT)
        every = list(range(len(case.ids)))
        fused = FusedReference(fuse(graph), model).forward(case.ids, every)
        assert_near(fused.astype(np.float32), exact, 1e-6)
