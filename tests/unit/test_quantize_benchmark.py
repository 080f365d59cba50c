"""`benchmarks/bench_quantize.py`: its texts are long enough, and no page of the documentation."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ingot.gguf import GgufLoader

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("bench_quantize")


def test_its_texts_are_long_enough_and_its_own(bench: Any, smollm2_path: Path) -> None:
    with GgufLoader(smollm2_path) as model:
        for text, count in (
            (bench.CALIBRATION, bench.CALIBRATED),
            (bench.EVALUATION, bench.EVALUATED),
        ):
            assert text.parent == BENCHMARKS / "texts"
            chunks = bench.chunks_of(model, text, count)
            assert [len(chunk) for chunk in chunks] == [bench.CONTEXT] * count
        with pytest.raises(SystemExit, match="are needed"):
            bench.chunks_of(model, bench.EVALUATION, 1000)
