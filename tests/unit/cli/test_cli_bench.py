"""`ingot bench`: which tests are run, and what is said of them."""

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_runs import Run

from ingot.backends.batch import ExecutionPhase
from ingot.engine import LoadedModel
from ingot.engine.model.timed_tokens import timed_tokens
from tiny_llama import write_tiny_llama


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf")


def bench(run: Run, *arguments: object) -> list[dict[str, Any]]:
    ran = run("bench", "-o", "json", *arguments)
    assert (ran.status, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert isinstance(found, list)
    return found


def test_the_fields_of_llama_bench(run: Run, model: Path) -> None:
    prompt, generation = bench(run, "-m", model, "-t", 1, "-p", 20, "-n", 5, "-d", 30, "-r", 4)
    assert (prompt["n_prompt"], prompt["n_gen"], prompt["n_depth"]) == (20, 0, 30)
    assert (generation["n_prompt"], generation["n_gen"], generation["n_depth"]) == (0, 5, 30)
    for test in (prompt, generation):
        tokens = test["n_prompt"] + test["n_gen"]
        assert test["model_filename"] == str(model)
        assert test["model_type"].startswith("llama ")
        assert test["n_threads"] == test["n_sequences"] == 1
        assert (test["type_k"], test["type_v"], test["use_mmap"]) == ("f16", "f16", True)
        assert len(test["samples_ts"]) == len(test["samples_ns"]) == 4
        rates = [tokens * 1e9 / ns for ns in test["samples_ns"]]
        assert test["samples_ts"] == pytest.approx(rates, rel=1e-3)
        assert test["avg_ts"] == pytest.approx(statistics.mean(test["samples_ts"]))
        assert test["stddev_ts"] == pytest.approx(statistics.stdev(test["samples_ts"]))
        assert test["avg_ns"] == pytest.approx(statistics.mean(test["samples_ns"]), abs=1)


def test_lists_make_all_combinations(run: Run, model: Path) -> None:
    found = bench(
        run, "-m", model, "-r", 1, "-t", "1,2", "-p", "4,8", "-n", "0, 2", "-d", "0,3", "-s", "1,2"
    )
    keys = ("n_threads", "n_depth", "n_sequences", "n_prompt", "n_gen")
    assert [tuple(test[key] for key in keys) for test in found] == [
        (threads, depth, sequences, prompt, generated)
        for threads in (1, 2)
        for depth in (0, 3)
        for sequences in (1, 2)
        for prompt, generated in ((4, 0), (8, 0), (0, 2))
    ]
    assert all(test["stddev_ts"] == 0 for test in found)


def test_a_table(run: Run, model: Path) -> None:
    ran = run(
        "bench", "-m", model, "-t", 1, "-p", 8, "-n", 4, "-d", 16, "-s", 3, "--weights", "read"
    )
    assert (ran.status, ran.err) == (0, "")
    heading, *rows = ran.out.splitlines()
    assert heading.split() == ["model", "threads", "test", "tokens/s", "+-"]
    assert [row.split("  ")[0] for row in rows] == ["llama 78.3 k F32"] * 2
    assert "  pp8 x 3 @ d16 " in rows[0]
    assert "  tg4 x 3 @ d16 " in rows[1]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-p", "x"], "--n-prompt is 'x'; it must be a number, 0 or more, or a list"),
        (["-n", "1,,2"], "--n-gen is '1,,2'"),
        (["-d", "-1"], "--n-depth is '-1'"),
        (["-t", "0"], "--threads is '0'; it must be a number, 1 or more"),
        (["-t", "5000"], "threads is 5000; it must be a number from 1 to 1024"),
        (["-s", "65"], "--sequences is '65'; it must be a number, 1 to 64"),
        (["-p", "0", "-n", "0"], "nothing to time"),
        (["-p", "300"], "context is 300; this model allows 1 to 256"),
        (["-r", "0"], "0"),
        (["-o", "csv"], "csv"),
    ],
)
def test_bad_flags(run: Run, model: Path, flags: list[str], message: str) -> None:
    ran = run("bench", "-m", model, *flags)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err


def test_what_is_run(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[list[int], list[int], ExecutionPhase]] = []
    real = LoadedModel.step

    def step(self: LoadedModel, sequences: Any, ids: Any, outputs: Any, phase: Any) -> Any:
        starts = [sequence.length for sequence in sequences]
        steps.append((starts, [len(new) for new in ids], phase))
        logits = real(self, sequences, ids, outputs, phase)
        assert np.isfinite(logits).all()
        return logits

    monkeypatch.setattr(LoadedModel, "step", step)
    with LoadedModel(model, threads=1, context=20, cache_tokens=64) as loaded:
        seconds = timed_tokens(loaded, prompt=5, generated=2, depth=7, sequences=2)
        again = timed_tokens(loaded, prompt=0, generated=20, sequences=2)  # all was given back
    assert seconds > 0
    assert again > 0
    prompt, generation = ExecutionPhase.PROMPT, ExecutionPhase.GENERATION
    assert steps[:6] == [
        ([0], [7], prompt),
        ([0], [7], prompt),
        ([7], [5], prompt),
        ([7], [5], prompt),
        ([12, 12], [1, 1], generation),
        ([13, 13], [1, 1], generation),
    ]


def test_sequences_of_one_step_are_those_of_several(model: Path) -> None:
    texts = [np.array(ids, np.int32) for ids in ([1, 2, 3], [9, 8, 7, 6, 5])]
    token = np.array([65], np.int32)
    with LoadedModel(model, threads=1, cache_tokens=512) as loaded:

        def read(ids: Any) -> Any:
            sequence = loaded.sequence()
            loaded.step([sequence], [ids], np.empty(0, np.int32), ExecutionPhase.PROMPT)
            return sequence

        phase = ExecutionPhase.GENERATION
        alone = [
            loaded.step([read(ids)], [token], np.zeros(1, np.int32), phase)[0] for ids in texts
        ]
        both = [read(ids) for ids in texts]
        together = loaded.step(both, [token, token], np.arange(2, dtype=np.int32), phase)
    assert np.array_equal(together, alone)
