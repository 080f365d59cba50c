"""Models that cannot be run: one line that names what is wrong, before anything is generated."""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_runs import INGOT, Run

from tiny_llama import write_tiny_llama

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "a missing tensor": (
        {"without": ["blk.1.ffn_up.weight"]},
        "tensor blk.1.ffn_up.weight (shape (96, 64)) is missing; the file is incomplete",
    ),
    "a wrong shape": (
        {"tensors": {"blk.0.attn_k.weight": np.zeros((64, 64), np.float32)}},
        "tensor blk.0.attn_k.weight has shape (64, 64), but the metadata ask for (32, 64)",
    ),
    "a type without kernel": (
        {"tensors": {"blk.0.attn_k.weight": np.zeros((32, 64), np.int32)}},
        "tensor blk.0.attn_k.weight is I32, which the CPU cannot multiply; convert it to F32",
    ),
    "an architecture that is nearly known": (
        {"keys": {"general.architecture": "lama"}},
        "architecture 'lama' is not supported (near it: llama, llama4, jamba); `ingot inspect",
    ),
    "an architecture that is not known": (
        {"keys": {"general.architecture": "zzz"}},
        "architecture 'zzz' is not supported; `ingot inspect --architectures` lists those that are",
    ),
    "a key that is no number": (
        {"keys": {"llama.feed_forward_length": "wide"}},
        "llama.feed_forward_length at byte ",
    ),
    "no layers": (
        {"keys": {"llama.block_count": 0}},
        "llama.block_count is 0; it must be 1 to 20 in this file",
    ),
    "more layers than tensors": (
        {"keys": {"llama.block_count": 2**31}},
        "llama.block_count is 2147483648; it must be 1 to 20",
    ),
    "no heads": (
        {"keys": {"llama.attention.head_count": 0}},
        "llama.attention.head_count is 0; it must be 1 to 64",
    ),
    "half a pair": (
        {"keys": {"llama.rope.dimension_count": 3}},
        "llama.rope.dimension_count is 3; it must be an even number up to the size of a head, 32",
    ),
    "more pairs than a head has": (
        {"keys": {"llama.rope.dimension_count": 2**40}},
        "llama.rope.dimension_count is 1099511627776; it must be an even number",
    ),
    "a base that does not turn": (
        {"keys": {"llama.rope.freq_base": 0.0}},
        "llama.rope.freq_base is 0.0; it must be a positive number",
    ),
    "a scaling that is not known": (
        {"keys": {"llama.rope.scaling.type": "dynamic"}},
        "rotary scaling 'dynamic' is not known; none, linear, longrope and yarn are",
    ),
    "a vocabulary of another size": (
        {"keys": {"llama.vocab_size": 300}},
        "tensor token_embd.weight has shape (258, 64), but the metadata ask for (300, 64)",
    ),
    "a broken template": ({"template": "{% for %}"}, "line 1 of the chat template: "),
}


@pytest.mark.parametrize("case", CASES)
def test_one_line_that_names_it(run: Run, tmp_path: Path, case: str) -> None:
    changes, message = CASES[case]
    ran = run("run", "-m", write_tiny_llama(tmp_path / "bad.gguf", **changes), "hi")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("command", ["bench", "perplexity"])
def test_the_other_commands_say_it_too(run: Run, tmp_path: Path, command: str) -> None:
    changes, message = CASES["a missing tensor"]
    model = write_tiny_llama(tmp_path / "bad.gguf", **changes)
    text = [tmp_path / "text"] if command == "perplexity" else []
    (tmp_path / "text").write_text("text " * 500)
    ran = run(command, "-m", model, *text)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err


def test_a_context_that_memory_does_not_hold(run: Run, tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "long.gguf", keys={"llama.context_length": 2**31})
    ran = run("run", "-m", model, "-c", 2**31, "hi")
    assert (ran.status, ran.out) == (2, "")
    assert "a cache for 2147483648 tokens as f16 takes 524288 MiB of memory, and " in ran.err
    assert "choose a smaller context or cache, or a smaller kv_type" in ran.err


def test_a_process_that_may_not_have_the_memory(tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "long.gguf", keys={"llama.context_length": 2**23})
    limited = ["sh", "-c", 'ulimit -v 1500000; exec "$@"', "sh", str(INGOT)]  # the cache: 2 GiB
    done = subprocess.run(
        [*limited, "run", "-m", str(model), "-t", "1", "-c", str(2**23), "hi"],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # each would take some, on many cores
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{model}: there is no memory for a context of 8388608 tokens" in done.stderr
    assert done.stderr.count("\n") == 1
