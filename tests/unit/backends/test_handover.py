"""What both sides of the hand-over must agree on: enums, storages of the cache, lifetimes."""

import gc
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from ingot import _native
from ingot.backends.cpu import handover
from ingot.errors import ModelError
from ingot.graph.kv_type import KvType
from ops.small_graph import SmallGraph
from run_batches import Runner


def test_every_native_enum_has_a_python_twin() -> None:
    assert set(_native.CODES) == {*(kind.__name__ for kind in handover.ENUMS), "KvType"}
    for kind in handover.ENUMS:
        assert list(_native.CODES[kind.__name__].__members__) == list(kind.__members__)


def test_enums_that_differ_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Enum("NormKind", ["RMS", "BATCH"])
    monkeypatch.setattr(handover, "ENUMS", (other,))
    with pytest.raises(ImportError, match=r"NormKind is RMS, BATCH in .* and RMS, LAYER in"):
        handover._twins()


def test_storages_of_keys_and_values() -> None:
    """Native numbers are those of the tensor types; what the CPU does not know is refused."""
    for name, native in _native.CODES["KvType"].__members__.items():
        assert handover.stored_as(KvType[name]) is native
        assert native.value == KvType[name].ggml
    with pytest.raises(ModelError, match="as fp8; it can as f32, f16, bf16, q8_0, q4_0"):
        handover.stored_as(KvType.FP8)


def test_a_program_keeps_what_it_points_into(tmp_path: Path) -> None:
    """The file is closed and gone, decoded weights are nobody else's: the logits stay."""
    small = SmallGraph()
    x = small.embed(small.random(5, 64))
    x = small.norm(x, small.random(64, offset=1))
    y = small.linear(x, small.random(33, 64), small.random(33))
    path = tmp_path / "small.gguf"
    graph, model = small.build(small.select(y), path)
    with model:
        runner = Runner(graph, model)
        expected = runner.run([1, 4, 2])
    path.unlink()
    del model
    gc.collect()
    spoiled = [np.full(64, np.nan, np.float32) for _ in range(1000)]
    np.testing.assert_array_equal(runner.run([1, 4, 2]), expected)
    assert len(spoiled) == 1000
