"""`ingot perplexity` against its definition, computed in NumPy from the reference backend."""

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from command_runs import INGOT, Run
from terminals import shown_to_end

from ingot import LLM, GgufLoader
from ingot.backends.reference import Reference
from ingot.cli.perplexity import Perplexity
from ingot.models import build_graph
from tiny_llama import write_tiny_llama

BOS = 256
TEXT = "The quick brown fox jumps over the lazy dog, again and again. " * 3


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT + "\n")
    return path


def expected(model: Path, ids: list[int], context: int, *, bos: bool) -> tuple[float, float, int]:
    """Perplexity, its standard error and the number of scored tokens."""
    with GgufLoader(model) as file:
        reference = Reference(build_graph(file), file, np.float64)
    surprise: list[float] = []
    for start in range(0, len(ids) // context * context, context):
        chunk = ids[start : start + context]
        seen = [BOS, *chunk[1:]] if bos else chunk
        logits = reference.forward(seen).astype(np.float64)
        for position in range(context // 2, context - 1):
            row = logits[position] - logits[position].max()
            surprise.append(float(np.log(np.exp(row).sum()) - row[chunk[position + 1]]))
    found = float(np.exp(np.mean(surprise)))
    return found, found * float(np.std(surprise)) / (len(surprise) - 1) ** 0.5, len(surprise)


@pytest.mark.parametrize("context", [16, 33])
@pytest.mark.parametrize("bos", [True, False])
def test_the_definition(run: Run, tmp_path: Path, text: Path, context: int, bos: bool) -> None:
    model = write_tiny_llama(tmp_path / "t.gguf", keys={"tokenizer.ggml.add_bos_token": bos})
    with LLM(model) as llm:
        ids = llm.tokenizer.encode(TEXT)  # without the file's last line end
    assert len(ids) == len(TEXT) + bos
    ran = run("perplexity", "-m", model, "-c", context, "--json", "--kv-type", "f32", text)
    assert (ran.status, ran.err) == (0, "")
    found = Perplexity(**json.loads(ran.out))
    value, error, tokens = expected(model, ids, context, bos=bos)
    assert found.perplexity == pytest.approx(value, rel=5e-3)
    assert found.standard_error == pytest.approx(error, rel=2e-2)
    assert (found.tokens, found.chunks) == (tokens, len(ids) // context)
    assert found.context == context


def test_the_line_for_a_person(run: Run, tmp_path: Path, text: Path) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    found = Perplexity(**json.loads(run("perplexity", "-m", model, "-c", 32, "--json", text).out))
    assert run("perplexity", "-m", model, "-c", 32, text).out == (
        f"perplexity {found.perplexity:.4f} +- {found.standard_error:.5f} "
        "(75 tokens scored in 5 chunks of 32)\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-c", "100"], "the text is too short: 187 tokens, but 2 chunks of 100 need 200; use a"),
        (["-c", "300"], "context is 300; this model allows 1 to 256"),
        (["-c", "3"], "3"),
    ],
)
def test_what_cannot_be_measured(
    run: Run, tmp_path: Path, text: Path, flags: list[str], message: str
) -> None:
    ran = run("perplexity", "-m", write_tiny_llama(tmp_path / "tiny.gguf"), *flags, text)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err


def test_a_missing_text(run: Run, tmp_path: Path) -> None:
    ran = run("perplexity", "-m", write_tiny_llama(tmp_path / "t.gguf"), tmp_path / "none")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == f"error: {tmp_path / 'none'}: No such file or directory\n"


def test_a_bar_on_a_terminal(tmp_path: Path, text: Path) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    leader, follower = pty.openpty()
    command = [str(INGOT), "perplexity", "-m", str(model), "-c", "32", str(text)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower, check=True)
    os.close(follower)
    shown = shown_to_end(leader)
    assert done.stdout.startswith(b"perplexity ")
    assert "scoring [" in shown
    assert "4 of 5 chunks" in shown
    assert re.search(r"\r +\r$", shown)
