"""Attention and the cache on the GPU, against the reference: the cases of the CPU's tests."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_graphs import expected_logits
from test_attention_ops import ROPES, Case

from gpu.gpu_runner import GpuRunner
from ingot.backends.gpu import find_device
from ingot.backends.gpu.attention import PromptTile, generation_span
from ingot.graph import ops as o
from ingot.graph.kv_type import KvType

INTERPRETED = find_device().interpreted
HALVES = 4e-3  # queries and shares are rounded to 11 bits
COARSE = {KvType.BF16: 4, KvType.Q8_0: 4, KvType.FP8: 16}  # which have 8, 8 and 4


def check(case: Case, folder: Path) -> None:
    small, logits = case.build()
    graph, model = small.build(logits, folder / "attention.gguf")
    ids = list(range(case.tokens))
    with model:
        expected = expected_logits(graph, model, ids, case.kv_type)
        runner = GpuRunner(
            graph,
            model,
            kv_type=case.kv_type,
            positions=case.tokens + 5,
            max_tokens=max(case.tokens, 8),
        )
        found = runner.run(ids, case.chunks, case.generated)
        assert np.isfinite(found).all()
        # A key or value that was rounded the other way is a step of its type away; of fp8, and for
        # a token that sees few others, that is much of one number.
        bound = HALVES * COARSE.get(case.kv_type, 1)
        size = np.sqrt((expected**2).mean())
        assert np.abs(found - expected).max() / size < bound * (
            10 if case.kv_type is KvType.FP8 else 4
        )
        assert np.sqrt(((found - expected) ** 2).mean()) / size < bound


BASE = Case(size=32, heads=4, kv_heads=2, tokens=40, kv_type=KvType.F16, generated=2)


CASES = [
    replace(BASE, kv_type=KvType.F32, chunks=(7,), size=16, tokens=20),
    replace(BASE, kv_type=KvType.BF16, size=16, tokens=20, kv_heads=4),
    replace(BASE, kv_type=KvType.Q8_0, heads=2, kv_heads=1, tokens=20),
    replace(BASE, kv_type=KvType.FP8, size=20, heads=2, kv_heads=1, tokens=20, chunks=(7,)),
    replace(BASE, size=20, heads=3, kv_heads=1, tokens=20),
    replace(BASE, sinks=True, window=7, softcap=3.0, size=16, heads=2, kv_heads=1, generated=3),
    replace(BASE, heads=2, kv_heads=1, size=16, tokens=131, chunks=(70,), sinks=True),
]
MORE = [  # seconds each in the interpreter
    replace(BASE, kv_type=KvType.BF16),
    replace(BASE, kv_type=KvType.Q8_0, size=64),
    replace(BASE, kv_type=KvType.FP8, size=64, tokens=131, chunks=(70,), sinks=True),
    replace(BASE, size=80, heads=5, kv_heads=5, tokens=20),
    replace(BASE, heads=8, kv_heads=1, softcap=5.0),
    replace(BASE, window=33, tokens=80, chunks=(50,), generated=3),
    replace(BASE, tokens=300, chunks=(70, 78), sinks=True, generated=20),
]


@pytest.mark.parametrize("case", CASES if INTERPRETED else CASES + MORE, ids=str)
def test_kinds_of_attention(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.parametrize("layout", o.RopeLayout)
@pytest.mark.parametrize("kind", ["partial"] if INTERPRETED else list(ROPES))
def test_rotary_turns(kind: str, layout: o.RopeLayout, tmp_path: Path) -> None:
    speeds, magnitude = ROPES[kind]
    case = replace(
        BASE, size=16, tokens=12, speeds=speeds, magnitude=magnitude, layout=layout, norms=True
    )
    check(replace(case, scale=16**-0.5), tmp_path)


def test_little_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller tiles of queries and positions, and what they compute is the same."""
    small = replace(find_device(), shared_memory=6000)
    assert PromptTile.of(32, KvType.F16, small) == PromptTile(32, 16)
    assert generation_span(16, 32, KvType.F16, small) == 16
    monkeypatch.setattr("gpu.gpu_runner.find_device", lambda: small)
    check(replace(BASE, chunks=(37,), window=21), tmp_path)
