"""An engine in another process: the same texts, errors and ends as in this one."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from holding import PATIENCE
from ingot import LLM
from ingot.engine.request import RequestState
from ingot.errors import (
    AdapterError,
    ContextLengthError,
    EngineError,
    ModelError,
    QueueFullError,
    RequestCancelledError,
    SamplingError,
)
from ingot.sampling import Grammar
from tiny_adapters import write_random_adapter
from tiny_llama import write_tiny_llama

ENDLESS = {"max_tokens": None, "ignore_eos": True, "context_overflow": "shift"}
KINDS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1.5, "seed": 3},
    {"temperature": 1.5, "seed": 4, "logprobs": True, "n_probs": 3},
    {"temperature": 1.5, "seed": 5, "stop": ["a", "e"]},
    {"temperature": 1.5, "seed": 6, "logit_bias": {7: 3.0}, "repeat_penalty": 1.2},
    {"temperature": 1.5, "seed": 7, "grammar": Grammar.json_schema('{"type": "integer"}')},
    {"max_tokens": 0},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def here(path: Path) -> Iterator[LLM]:
    with LLM(path, threads=1) as llm:
        yield llm


@pytest.fixture(scope="module")
def there(path: Path) -> Iterator[LLM]:
    with LLM(path, threads=1, engine_process=True) as llm:
        yield llm


@pytest.mark.parametrize("kind", KINDS)
def test_completions_are_the_same(here: LLM, there: LLM, kind: dict[str, Any]) -> None:
    asked = {"max_tokens": 24, **kind}
    expected, found = here.stream("abc", **asked), there.stream("abc", **asked)
    assert "".join(found) == "".join(expected)
    one, other = expected.result(), found.result()
    assert other.token_ids == one.token_ids == found.token_ids
    assert (other.text, other.finish_reason, other.stopped_by) == (
        one.text,
        one.finish_reason,
        one.stopped_by,
    )
    assert other.logprobs == one.logprobs == found.logprobs
    assert found.state == expected.state
    assert found.finish_reason == expected.finish_reason
    assert other.timings.generated_tokens == one.timings.generated_tokens
    if "seed" in kind:
        assert found.seed == one.seed


def test_many_at_once_in_an_event_loop(here: LLM, there: LLM) -> None:
    async def texts(llm: LLM) -> list[str]:
        async def read(seed: int) -> str:
            request = llm.stream("abc", max_tokens=20, temperature=1.5, seed=seed)
            return "".join([piece async for piece in request])

        return await asyncio.gather(*map(read, range(40)))

    assert asyncio.run(texts(there)) == asyncio.run(texts(here))


def test_progress_of_a_prompt_is_told(there: LLM) -> None:
    told: list[tuple[int, int]] = []
    request = there.stream(
        list(range(1, 200)), max_tokens=2, reuse=False, progress=lambda *now: told.append(now)
    )
    list(request)
    assert told[0] == (0, 199)
    assert told[-1] == (199, 199)


@pytest.mark.parametrize(
    ("asked", "kind", "message"),
    [
        ({"stop_token_ids": [9999]}, SamplingError, "stop_token_ids is 9999"),
        ({"max_tokens": 300, "ignore_eos": True}, ContextLengthError, "filled the context of 256"),
        ({"processors": [lambda *_: None]}, ModelError, "engine_process=False"),
    ],
)
def test_errors_keep_their_types(
    there: LLM, asked: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        there.generate("abc", **asked)


def test_adapters_are_used_in_the_process(path: Path, tmp_path: Path) -> None:
    """Several in one batch, mixed, by default, added and removed while a request runs."""
    files = {
        name: write_random_adapter(tmp_path / f"{name}.gguf", seed=seed)
        for seed, name in enumerate(("one", "two", "three"))
    }
    given = {"adapters": {"one": files["one"], "two": files["two"]}, "adapter_scales": {"one": 0.5}}
    choices = [None, {}, "one", "two", {"one": 0.5, "two": -0.3}]
    with (
        LLM(path, threads=1, **given) as here,
        LLM(path, threads=1, engine_process=True, **given) as there,
    ):
        assert there.adapters == here.adapters == ("one", "two")

        def texts(llm: LLM) -> list[tuple[int, ...]]:
            asked = {"max_tokens": 20, "temperature": 0}
            requests = [llm.stream("abc", adapter=each, **asked) for each in choices]
            return [tuple(request.result().token_ids) for request in requests]

        assert texts(there) == texts(here)
        assert len(set(texts(here))) == len(choices)
        ids = list(range(1, 30))
        for choice in choices:
            expected = here.logits(ids, adapter=choice)
            np.testing.assert_array_equal(there.logits(ids, adapter=choice), expected)
        running = there.stream("abc", adapter="two", **ENDLESS)
        next(iter(running))
        there.remove_adapter("two")
        for llm in (here, there):
            llm.add_adapter("three", files["three"])
        expected = here.logits(ids, adapter="three")
        np.testing.assert_array_equal(there.logits(ids, adapter="three"), expected)
        assert running.state is RequestState.GENERATING
        running.cancel()
        with pytest.raises(AdapterError, match="no adapter 'two'"):
            there.generate("abc", adapter="two")
        with pytest.raises(AdapterError, match="cannot be saved"):
            there.save(ids, tmp_path / "text")


def test_an_adapter_that_cannot_be_opened_is_an_error(path: Path, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="no adapter"):
        LLM(path, threads=1, engine_process=True, adapters={"it": tmp_path / "missing.gguf"})


def test_scores_saved_texts_and_statistics(here: LLM, there: LLM, tmp_path: Path) -> None:
    assert there.score("abcdefgh") == here.score("abcdefgh")
    ids = list(range(1, 100))
    there.save(ids, tmp_path / "text")
    there.engine.clear_cache()
    assert there.restore(tmp_path / "text") == tuple(ids[:96])
    before = there.stats.reused_tokens
    there.generate(ids, max_tokens=4, ignore_eos=True)
    assert there.stats.reused_tokens >= before + 96
    assert sum(there.engine.token_gaps.counts) > 0
    there.engine.check()


def test_a_reader_of_logits_that_fails_ends_the_text(there: LLM) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        there.engine.read_rows(there.engine.encode("abcdef"), broken)
    wait_until_free(there)


def wait_until_free(llm: LLM) -> None:
    """Wait until no request holds anything."""
    end = time.monotonic() + PATIENCE
    while (stats := llm.stats).running or stats.waiting or stats.blocks_held:
        assert time.monotonic() < end, stats
        time.sleep(0.01)


@pytest.mark.parametrize("engine_process", [False, True])
def test_512_requests_of_which_half_are_dropped_leave_no_block(
    path: Path, *, engine_process: bool
) -> None:
    dropped = {*Random(1).sample(range(512), 256)}
    kept = {*range(512)} - dropped
    with LLM(path, threads=1, max_running=64, engine_process=engine_process) as llm:
        asked = {"max_tokens": 12, "ignore_eos": True, "reuse": False}
        requests = [
            llm.stream([1 + n % 200, 2, 3], **asked | (ENDLESS if n in dropped else {}))
            for n in range(512)
        ]
        for number in dropped:
            requests[number].cancel()
        assert [len(requests[n].result(PATIENCE).token_ids) for n in kept] == [12] * 256
        for number in dropped:
            with pytest.raises(RequestCancelledError):
                requests[number].result(PATIENCE)
        wait_until_free(llm)
        assert llm.stats.blocks_held == 0


def test_a_full_queue_is_an_error_of_the_caller(path: Path) -> None:
    with LLM(path, threads=1, max_running=1, max_queue=1, engine_process=True) as llm:
        asked = {"max_tokens": 200, "ignore_eos": True}
        first = llm.stream("abc", **ENDLESS)
        next(first)
        second = llm.stream("abc", **asked)
        with pytest.raises(QueueFullError):
            llm.stream("abc", **asked)
        first.cancel()
        assert len(second.result(PATIENCE).token_ids) == 200


def test_a_process_that_is_killed_fails_what_waits(path: Path) -> None:
    llm = LLM(path, threads=1, engine_process=True)
    request = llm.stream("abc", **ENDLESS)
    os.kill(llm.engine._link._process.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match=r"has ended \(exit status -9\); open the model again"):
        request.result(PATIENCE)
    for use in (lambda: llm.generate("abc"), llm.engine.check, lambda: llm.stats):
        with pytest.raises(EngineError, match="open the model again"):
            use()
    llm.close()


def test_what_is_running_at_the_close_fails(path: Path) -> None:
    llm = LLM(path, threads=1, engine_process=True)
    request = llm.stream("abc", **ENDLESS)
    next(request)
    process = llm.engine._link._process
    llm.close()
    assert process.exitcode == 0
    with pytest.raises(ModelError, match="is closed; open it again"):
        request.result(PATIENCE)
    with pytest.raises(ModelError, match="is closed; open it again"):
        llm.generate("abc")
    llm.close()


def test_a_file_that_cannot_be_opened_is_an_error_here(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    with pytest.raises(Exception, match=r"broken\.gguf"):
        LLM(broken, engine_process=True)


PROGRAM = """
from ingot import LLM
if __name__ == "__main__":
    llm = LLM({path!r}, threads=1, engine_process=True)
    request = llm.stream("abc", max_tokens=200, ignore_eos=True)
    print(next(request) != "", llm.engine._link._process.pid, flush=True)
"""


def test_a_program_that_does_not_close_its_model_ends(path: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(path=str(path)))
    found = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    said, process = found.stdout.split()
    assert said == "True"
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)
