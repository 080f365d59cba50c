"""`ingot compare` on tiny models: equal ones, a quantized one, and what cannot be compared."""

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from command_runs import Run

from ingot import LLM
from ingot.cli.shared.output import size
from ingot.gguf import GgmlType
from models.tiny_models import Fixture

SVG = "{http://www.w3.org/2000/svg}"
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


def test_a_plot(run: Run, models: tuple[Path, Path, Path], tmp_path: Path) -> None:
    a, b, text = models
    odd = b.rename(tmp_path / "b & <c>.gguf")
    plot = tmp_path / "kl.svg"
    options = ("-c", 32, "-t", 1, "--json", "--plot", plot)
    found = json.loads(run("compare", a, odd, text, *options).out)
    drawn = ElementTree.parse(plot).getroot()
    said = [element.text or "" for element in drawn.iter(f"{SVG}text")]
    assert f"B  {odd}: {size(found['size_b'])}, perplexity {found['perplexity_b']:.4f}" in said
    assert f"same first choice {found['same_top']:.2%}, of {found['tokens']} tokens" in said
    assert [text for text in said if text.endswith("%") and text[0].isdecimal()] == [
        f"{share:.1%}" for share in found["kl_shares"]
    ]
    bars = [bar for bar in drawn.iter(f"{SVG}rect") if bar.get("class") == "bar"]
    longest = max(float(bar.get("width", 0)) for bar in bars)
    lengths = [float(bar.get("width", 0)) / longest for bar in bars]
    most = max(found["kl_shares"])
    assert lengths == pytest.approx([share / most for share in found["kl_shares"]], abs=1e-3)
    width, height = (float(drawn.get(side, 0)) for side in ("width", "height"))
    for element in drawn.iter(f"{SVG}text"):
        end = float(element.get("x", 0)) + 6.7 * len(element.text or "")
        assert end < width
        assert float(element.get("y", 0)) < height


def test_a_plot_of_another_format(run: Run, models: tuple[Path, Path, Path]) -> None:
    a, b, text = models
    done = run("compare", a, b, text, "--plot", "kl.png")
    assert (done.status, done.out) == (2, "")
    assert "its name must end in .svg" in done.err


def test_what_cannot_be_compared(
    run: Run, models: tuple[Path, Path, Path], smollm2_path: Path
) -> None:
    a, _, text = models
    done = run("compare", a, smollm2_path, text, "-c", 32, "-t", 1)
    assert (done.status, "different vocabularies" in done.err) == (2, True)
    text.write_text("t1")
    done = run("compare", a, a, text, "-c", 32, "-t", 1)
    assert (done.status, "the text is too short" in done.err) == (2, True)
