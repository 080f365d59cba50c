"""LLM: texts, logits, settings, several users at once, and what is said when it cannot."""

import copy
import pickle
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import LLM, store
from ingot.backends.reference import Reference
from ingot.engine import Completion, RequestState
from ingot.errors import (
    ChatTemplateError,
    ConfigError,
    ContextLengthError,
    ModelError,
    SamplingError,
)
from ingot.store import default_model
from tiny_llama import CONTEXT, vocabulary, write_tiny_llama

PROMPT = [256, 104, 105, 32, 116]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("llm") / "tiny.gguf")


@pytest.fixture
def llm(path: Path) -> Iterator[LLM]:
    with LLM(path, threads=1) as opened:
        yield opened


def test_ingot_offers_it() -> None:
    assert "LLM" in dir(ingot)
    assert ingot.LLM is LLM


def test_default_is_the_default_model(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file takes the place of the default model in the folder of models."""
    found = replace(store.DEFAULT_MODEL, file=path.name, size=path.stat().st_size)
    monkeypatch.setattr(default_model, "DEFAULT_MODEL", found)
    monkeypatch.setattr(store, "models_folder", lambda: path.parent)
    with LLM("default", threads=1) as llm:
        assert llm.path == path
        assert llm.generate(PROMPT, max_tokens=2).finish_reason == "length"


def test_default_writes_english(smollm2_path: Path) -> None:
    with LLM("default", threads=1) as llm:
        assert llm.path == smollm2_path
        asked = "The capital of France is"
        assert llm.generate(asked, max_tokens=2, temperature=0).text == " Paris."


def test_a_text_is_the_likeliest_token_again_and_again(llm: LLM) -> None:
    done = llm.generate(PROMPT, max_tokens=6, temperature=0)
    ids = list(PROMPT)
    reference = Reference(llm.graph, llm.file)
    for token in done.token_ids:
        assert token == int(reference.forward(ids)[-1].argmax())
        ids.append(token)
    assert done.finish_reason == "length"
    assert done.text == llm.tokenizer.decode(done.token_ids)


def test_pieces_make_the_text(llm: LLM) -> None:
    whole = llm.generate("hello", max_tokens=30, temperature=0)
    stream = llm.stream("hello", max_tokens=30, temperature=0)
    assert "".join(stream) == whole.text
    assert stream.token_ids == whole.token_ids
    assert stream.finish_reason == "length"


def test_text_and_its_tokens_are_the_same_prompt(llm: LLM) -> None:
    ids = llm.tokenizer.encode("hi there")
    assert llm.generate("hi there", max_tokens=5, temperature=0).token_ids == (
        llm.generate(np.array(ids), max_tokens=5, temperature=0).token_ids
    )


def test_an_end_token_ends_the_text(path: Path, tmp_path: Path) -> None:
    with LLM(path, threads=1) as llm:
        ids = llm.generate(PROMPT, max_tokens=20, temperature=0).token_ids
    end = next(token for token in ids if token != ids[0])
    other = write_tiny_llama(tmp_path / "ends.gguf", keys={"tokenizer.ggml.eos_token_id": end})
    with LLM(other, threads=1) as llm:
        done = llm.generate(PROMPT, max_tokens=20, temperature=0)
    assert (done.token_ids, done.finish_reason) == (ids[: ids.index(end)], "stop")
    assert done.timings.steps == len(done.token_ids) > 0


def test_a_full_context_is_an_error(llm: LLM) -> None:
    stream = llm.stream([1] * (CONTEXT - 3), max_tokens=10, temperature=0)
    with pytest.raises(ContextLengthError, match=f"filled the context of {CONTEXT} tokens"):
        list(stream)
    assert len(stream.token_ids) == 3
    with pytest.raises(ContextLengthError, match="context_overflow='shift' or 'stop'"):
        llm.generate([1] * CONTEXT, max_tokens=10, temperature=0)


def test_a_full_context_can_end_the_text(llm: LLM) -> None:
    def write(prompt: int) -> Completion:
        return llm.generate(
            [1] * prompt, max_tokens=10, temperature=0, context_overflow="stop", ignore_eos=True
        )

    done = write(CONTEXT - 3)
    assert (len(done.token_ids), done.finish_reason) == (3, "context")
    assert write(CONTEXT).finish_reason == "context"
    assert write(CONTEXT - 10).finish_reason == "length"


def test_a_full_context_can_shift(llm: LLM) -> None:
    """The first tokens and the newer half of the rest are read again as a prompt."""
    prompt = [256, *range(CONTEXT - 4)]
    asked = {"temperature": 0, "ignore_eos": True}
    done = llm.generate(prompt, max_tokens=9, context_overflow="shift", keep=5, **asked)
    assert (len(done.token_ids), done.finish_reason) == (9, "length")
    full = [*prompt, *done.token_ids[:3]]
    left = full[:5] + full[len(full) - (CONTEXT - 5) // 2 :]
    assert llm.generate(left, max_tokens=6, **asked).token_ids == done.token_ids[3:]
    long = llm.generate([1], max_tokens=3 * CONTEXT, context_overflow="shift", **asked)
    assert len(long.token_ids) == 3 * CONTEXT


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"context_overflow": "wrap"}, "context_overflow is 'wrap'; it must be one of error, stop"),
        ({"context_overflow": "shift", "keep": -1}, "keep is -1"),
        ({"context_overflow": "shift", "negative_prompt": "x"}, "with a negative_prompt"),
    ],
)
def test_ways_to_overflow_are_checked(llm: LLM, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(SamplingError, match=message):
        llm.generate(PROMPT, **asked)


def test_no_tokens_are_a_text_too(llm: LLM) -> None:
    done = llm.generate(PROMPT, max_tokens=0, temperature=0)
    assert (done.text, done.token_ids, done.finish_reason) == ("", (), "length")


def test_temperature_draws_and_a_seed_repeats(llm: LLM) -> None:
    def write(seed: int) -> tuple[int, ...]:
        return llm.generate(PROMPT, max_tokens=20, temperature=2.0, seed=seed).token_ids

    assert write(1) == write(1)
    assert write(1) != write(2)


def test_timings_count_tokens_and_steps(llm: LLM) -> None:
    stream = llm.stream(PROMPT, max_tokens=4, temperature=0)
    assert stream.timings.prompt_rate == stream.timings.generation_rate == 0.0
    assert stream.finish_reason is None
    list(stream)
    timings = stream.timings
    assert (timings.prompt_tokens, timings.generated_tokens, timings.steps) == (5, 4, 3)
    assert timings.prompt_rate == 5 / timings.prompt_seconds
    assert timings.generation_rate == 3 / timings.generation_seconds


def test_progress_of_a_prompt(path: Path) -> None:
    told: list[tuple[int, int]] = []
    asked = threading.Event()

    def hold(_: Any, __: Any) -> None:
        asked.wait()

    with LLM(path, threads=1) as llm:
        running = llm.stream([7], max_tokens=200, temperature=0, ignore_eos=True, processors=[hold])
        while running.state is not RequestState.GENERATING:
            time.sleep(0.001)
        stream = llm.stream(  # a prompt that is read in chunks, beside a text
            [5] * 230, max_tokens=1, progress=lambda *step: told.append(step), temperature=0
        )
        asked.set()
        list(stream)
    assert told == [(0, 230), (128, 230), (230, 230)]


def test_logits_of_every_position(llm: LLM) -> None:
    ids = [256, *range(60)]
    logits = llm.logits(ids)
    assert (logits.shape, logits.dtype) == ((61, len(vocabulary())), np.float32)
    expected = Reference(llm.graph, llm.file).forward(ids)
    assert np.abs(logits - expected).max() < 0.02 * np.abs(expected).max()


def test_logits_in_pieces_are_the_same_logits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = list(range(100))
    with LLM(path, threads=1) as llm:
        whole = llm.logits(ids)
    monkeypatch.setattr("ingot.engine.engine._ROW_BYTES", 1)
    with LLM(path, threads=1) as llm:
        starts: list[tuple[int, int]] = []
        llm.engine.read_rows(
            np.array(ids, np.int32), lambda start, rows: starts.append((start, len(rows))), first=30
        )
        assert starts == [(30, 64), (94, 6)]
        assert np.array_equal(llm.logits(ids), whole)


@pytest.mark.parametrize("weights", ["auto", "repack", "map", "lock", "read"])
@pytest.mark.parametrize("kv_type", ["f32", "q8_0"])
def test_where_the_weights_are_changes_nothing(path: Path, weights: str, kv_type: str) -> None:
    with LLM(path, threads=1, kv_type=kv_type) as plain:
        expected = plain.logits(PROMPT)
    with LLM(path, threads=1, kv_type=kv_type, weights=weights) as llm:
        assert np.array_equal(llm.logits(PROMPT), expected)
        assert all(file.is_mapped == (weights != "read") for file in llm.file.files)


def test_a_loop_over_a_stream_may_ask_for_more(llm: LLM) -> None:
    alone = llm.generate("abc", max_tokens=4, temperature=0)
    stream = llm.stream(PROMPT, max_tokens=8, temperature=0)
    for _ in stream:
        assert llm.generate("abc", max_tokens=4, temperature=0).token_ids == alone.token_ids
        assert len(llm.logits(PROMPT)) == len(PROMPT)
    assert stream.token_ids == llm.generate(PROMPT, max_tokens=8, temperature=0).token_ids


def test_threads_take_turns(llm: LLM) -> None:
    prompts = [[1 + number] * 150 for number in range(4)]  # two would not fit at once
    expected = [llm.generate(prompt, max_tokens=5, temperature=0).token_ids for prompt in prompts]
    found: dict[int, tuple[int, ...]] = {}

    def work(number: int) -> None:
        found[number] = llm.generate(prompts[number], max_tokens=5, temperature=0).token_ids

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(4)] == expected


def test_what_does_not_fit_beside_a_stream_takes_turns(path: Path) -> None:
    """A cache for one text of this length: the one that came last gives its place up."""
    with LLM(path, threads=1, cache_tokens=CONTEXT, reuse="none") as llm:
        expected = llm.generate([1] * 200, max_tokens=50, temperature=0, ignore_eos=True)
        stream = llm.stream([1] * 200, max_tokens=50, temperature=0, ignore_eos=True)
        next(stream)
        assert len(llm.logits([1] * 100)) == 100
        assert stream.result().token_ids == expected.token_ids


def test_dropping_a_stream_frees_the_cache(llm: LLM) -> None:
    for _ in range(3):
        next(llm.stream([1] * 200, max_tokens=8, temperature=0))
    assert len(llm.logits([1] * CONTEXT)) == CONTEXT


def test_closing_in_the_middle_of_a_text(path: Path) -> None:
    llm = LLM(path, threads=1)
    stream = llm.stream(
        PROMPT, max_tokens=None, temperature=0, ignore_eos=True, context_overflow="shift"
    )
    next(stream)
    llm.close()
    with pytest.raises(ModelError, match="is closed"):
        list(stream)
    with pytest.raises(ModelError, match="is closed"):
        llm.generate("x")
    llm.close()
    stream.close()


@pytest.mark.parametrize("threads", [0, -1, 1025, 1.5, True, "2"])
def test_threads_are_checked(path: Path, threads: object) -> None:
    with pytest.raises(ConfigError, match=r"threads is .*; it must be a number from 1 to 1024"):
        LLM(path, threads=threads)  # type: ignore[arg-type]


def test_a_path_may_begin_at_home(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(path.parent))
    with LLM(f"~/{path.name}", threads=1) as llm:
        assert llm.path == path


@pytest.mark.parametrize("use", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_model_cannot_be_pickled(llm: LLM, use: Any) -> None:
    with pytest.raises(
        TypeError, match=r"cannot be pickled or copied.* open the model in"
    ) as error:
        use(llm)
    assert isinstance(error.value, ingot.PickleError)


def test_settings_that_do_not_exist(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kv_type is 'q2'.*f32, f16, bf16, q8_0, q4_0, fp8"):
        LLM(path, kv_type="q2")
    with pytest.raises(ConfigError, match=r"weights is 'disk'.*map, lock, read"):
        LLM(path, weights="disk")
    with pytest.raises(ContextLengthError, match="context is 257; this model allows 1 to 256"):
        LLM(path, context=257)
    with pytest.raises(ContextLengthError, match=r"context is 9.5; this model allows 1 to 256"):
        LLM(path, context=9.5)


def test_a_storage_that_only_a_gpu_has(path: Path) -> None:
    with pytest.raises(ModelError, match=r"as fp8; it can as f32, f16, bf16, q8_0, q4_0$"):
        LLM(path, kv_type="fp8")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "the prompt is empty"),
        ([0, 258], "token id 258 is not in the vocabulary: ids go from 0 to 257"),
        ([-1], "token id -1"),
        ([0.5], "whole numbers"),
        ([[1], [2]], "one flat list"),
        ([[1], [2, 3]], "one flat list"),
        (["a", "b"], "batch takes many"),
    ],
)
def test_prompts_that_cannot_be_run(llm: LLM, ids: list[int], message: str) -> None:
    for use in (llm.logits, llm.generate):
        with pytest.raises(ModelError, match=message):
            use(ids)


@pytest.mark.parametrize("messages", [["hi"], [None]])
def test_what_is_no_messages(llm: LLM, messages: object) -> None:
    with pytest.raises(ChatTemplateError, match="message"):
        llm.chat(messages)


def test_a_prompt_longer_than_the_context(path: Path) -> None:
    with (
        LLM(path, threads=1, context=10) as llm,
        pytest.raises(ContextLengthError, match=r"11 tokens and the context 10; .*at most 256"),
    ):
        llm.generate([1] * 11)


@pytest.mark.parametrize("wrong", [{"max_tokens": -2}, {"temperature": -0.5}])
def test_numbers_that_make_no_text(llm: LLM, wrong: dict[str, int]) -> None:
    with pytest.raises(SamplingError, match=f"{next(iter(wrong))} is "):
        llm.stream("x", **wrong)
    with pytest.raises(SamplingError, match="temperature is nan"):
        llm.stream("x", temperature=float("nan"))


def test_too_little_memory_says_how_much(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.engine.model.memory.available", lambda: 10 << 10)
    with pytest.raises(MemoryError, match=r"cache for 256 tokens as f16 takes .* MiB.*smaller"):
        LLM(path)
    monkeypatch.setattr("ingot.engine.model.memory.available", lambda: 100 << 10)
    LLM(path, kv_type="q4_0").close()
    with pytest.raises(ModelError, match="weights='read' takes"):
        LLM(path, weights="read", kv_type="q4_0")
