"""`ingot compare` on tiny models: equal ones, a quantized one, and what cannot be compared."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from command_runs import Run

from ingot import LLM
from ingot.gguf import GgmlType
from models.tiny_models import Fixture

TEXT = " ".join(f"t{(7 * n) % 61}" for n in range(200))


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path, Path]:
    fixture = Fixture.load("llama")
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    return (
        fixture.write(tmp_path / "a.gguf"),
        fixture.write(tmp_path / "b.gguf", GgmlType.Q4_0),
        text,
    )


def test_equal_models(run: Run, models: tuple[Path, Path, Path]) -> None:
    a, _, text = models
    done = run("compare", a, a, text, "-c", 32, "-t", 1, "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["kl_max"] < 1e-9
    assert found["same_top"] == 1.0
    assert found["perplexity_a"] == found["perplexity_b"]
    assert found["kl_shares"] == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_a_quantized_model(run: Run, models: tuple[Path, Path, Path]) -> None:
    a, b, text = models
    options = ("-c", 32, "-t", 1, "--chunks", 2)
    found = json.loads(run("compare", a, b, text, *options, "--json").out)
    with LLM(a, context=32, threads=1) as first, LLM(b, context=32, threads=1) as second:
        ids = first.tokenizer.encode(TEXT)
        expected, scores = [], []
        for start in (0, 32):
            chunk = ids[start : start + 32]
            if first.tokenizer.adds_bos:
                chunk[0] = first.tokenizer.bos_id
            rows = []
            for llm in (first, second):
                logits = llm.logits(chunk).astype("f8")
                rows.append(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
            for at in range(16, 31):
                p, q = rows[0][at], rows[1][at]
                expected.append(float((np.exp(p) * (p - q)).sum()))
                scores.append(-q[chunk[at + 1]])
    assert found["tokens"] == 30
    assert found["kl_mean"] == pytest.approx(np.mean(expected), rel=1e-6)
    assert found["kl_max"] == pytest.approx(max(expected), rel=1e-6)
    assert found["perplexity_b"] == pytest.approx(math.exp(np.mean(scores)), rel=1e-6)
    assert found["size_b"] < found["size_a"]
    shown = run("compare", a, b, text, *options).out
    assert "mean KL" in shown
    assert "#" in shown


def test_what_cannot_be_compared(
    run: Run, models: tuple[Path, Path, Path], smollm2_path: Path
) -> None:
    a, _, text = models
    done = run("compare", a, smollm2_path, text, "-c", 32, "-t", 1)
    assert (done.status, "different vocabularies" in done.err) == (2, True)
    text.write_text("t1")
    done = run("compare", a, a, text, "-c", 32, "-t", 1)
    assert (done.status, "the text is too short" in done.err) == (2, True)
