"""Guesses change no text, whoever makes them and however often."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device_sampler import CpuSampler

from ingot import LLM, Grammar
from ingot.engine.speculation import AutoSpeculation
from ingot.engine.speculation.proposers import NgramProposer
from ingot.errors import ConfigError, SamplingError
from tiny_llama import CONTROLS, write_tiny_llama

PROMPT = [256, *range(100), *range(40)]
GREEDY = {"temperature": 0, "ignore_eos": True}
HOT = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "ignore_eos": True}
ASKED: list[dict[str, Any]] = [
    {"max_tokens": 100, **GREEDY},
    {"max_tokens": 100, "seed": 4, **HOT},
    {"max_tokens": 40, "seed": 1, "temperature": 0.3, "logprobs": True, "ignore_eos": True},
    {"max_tokens": 60, "stop": ["5"], **GREEDY},
    {"max_tokens": 200, "context_overflow": "stop", **GREEDY},
]


def texts(llm: LLM) -> list[Any]:
    return [
        llm.generate(prompt, **fields) for prompt in (PROMPT, [1, 2, 3] * 30) for fields in ASKED
    ]


@pytest.fixture(scope="module")
def expected(tiny: Path) -> list[Any]:
    with LLM(tiny, threads=1) as llm:
        return texts(llm)


def check(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.text, one.token_ids) == (other.text, other.token_ids)
        assert (one.finish_reason, one.logprobs) == (other.finish_reason, other.logprobs)


@pytest.fixture
def any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Automatic guesses are made whenever there are some, now long, now short, now none."""
    calls = iter(range(1_000_000))

    def worth(*_: object, **__: object) -> int:
        return (5, 0, 1, 3, 0, 0, 12)[next(calls) % 7]

    monkeypatch.setattr(AutoSpeculation, "tokens_worth", worth)
    monkeypatch.setattr(AutoSpeculation, "pause", 1)


@pytest.mark.parametrize("how", ["ngram", "draft"])
def test_guesses_change_no_text(tiny: Path, tmp_path: Path, how: str, expected: list[Any]) -> None:
    """Also if the guesses are good: a model that guesses for itself, texts that repeat."""
    draft = write_tiny_llama(tmp_path / "draft.gguf", layers=1)
    ways: list[dict[str, Any]] = (
        [{"speculation": "ngram"}] if how == "ngram" else [{"draft": tiny}, {"draft": draft}]
    )
    for way in ways:
        with LLM(tiny, threads=1, **way) as llm:
            found = texts(llm)
            check(found, expected)
            assert found[0].timings.steps < expected[0].timings.steps, "some guesses were right"
            assert llm.stats.blocks_held == 0


@pytest.mark.usefixtures("any_time")
@pytest.mark.parametrize("draft", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
def test_automatic_guesses_change_no_text(
    tiny: Path, expected: list[Any], *, draft: bool, ahead: bool
) -> None:
    with LLM(tiny, threads=1, speculation="auto", draft=tiny if draft else None) as llm:
        sampler = CpuSampler.of(llm) if ahead else None
        found = texts(llm)
        check(found, expected)
        assert found[0].timings.steps < expected[0].timings.steps, "some guesses were right"
        assert sampler is None or sampler.ahead > 0, "steps without guesses run ahead"
        assert llm.stats.accepted_tokens > 0
        assert llm.stats.blocks_held == 0
        assert llm.stats.text_steps < llm.stats.generated_tokens


def test_automatic_guesses_as_they_are(tiny: Path, expected: list[Any]) -> None:
    """With the costs of this machine, one text after the other and all at once."""
    with LLM(tiny, threads=1, speculation="auto") as llm:
        check(texts(llm), expected)
        requests = [llm.stream(prompt, **ASKED[0]) for prompt in (PROMPT, [1, 2, 3] * 30)]
        check([request.result() for request in requests], [expected[0], expected[5]])


@pytest.mark.usefixtures("any_time")
@pytest.mark.parametrize(
    ("way", "process"), [("ngram", False), ("ngram", True), ("draft", False), ("auto", False)]
)
def test_a_request_can_do_without(
    tiny: Path, expected: list[Any], way: str, *, process: bool
) -> None:
    options: dict[str, Any] = {"draft": tiny} if way == "draft" else {"speculation": way}
    with LLM(tiny, threads=1, engine_process=process, **options) as llm:
        check([llm.generate(PROMPT, speculation="off", **ASKED[0])], expected[:1])
        assert llm.stats.guessed_tokens == 0
        check([llm.generate(PROMPT, speculation="auto", **ASKED[0])], expected[:1])
        assert llm.stats.guessed_tokens > 0
        for wrong in ("ngram", "on", None):
            with pytest.raises(SamplingError, match=r"speculation .* 'off' or 'auto'"):
                llm.generate(PROMPT, speculation=wrong)  # type: ignore[arg-type]
    with LLM(tiny, threads=1) as llm:
        llm.generate(PROMPT, speculation="auto", **ASKED[0])
        assert llm.stats.guessed_tokens == 0, "what the engine does not do, no request switches on"


def test_every_text_leaves_its_ledger(tiny: Path) -> None:
    with LLM(tiny, threads=1, speculation="auto") as llm:
        llm.generate(PROMPT, max_tokens=5, **GREEDY)
        llm.generate(PROMPT, max_tokens=5, grammar=Grammar.gbnf('root ::= "a"+'), **GREEDY)
        running = llm.stream(PROMPT, max_tokens=100, **GREEDY)
        next(iter(running))
        running.cancel()
        llm.generate(PROMPT, max_tokens=1, **GREEDY)
        auto = llm.engine._parts.guesses.auto
        assert auto is not None
        assert auto._texts == []
        assert auto._guessing.most_columns >= 1, "the steps were measured"


def test_sampled_texts_keep_their_distribution(tiny: Path) -> None:
    """Two samples of a thousand texts, one with guesses: chi-square of their two last tokens."""

    def counted(llm: LLM, first: int) -> Counter[tuple[int, ...]]:
        params = {"temperature": 3.0, "top_k": 4, "top_p": 1.0, "min_p": 0.0, "ignore_eos": True}
        prompts = (
            llm.generate([7, 8, 9] * 4, max_tokens=4, seed=seed, **params)
            for seed in range(first, first + 1000)
        )
        return Counter(done.token_ids[2:] for done in prompts)

    with LLM(tiny, threads=1) as llm:
        plain = counted(llm, 0)
    with LLM(tiny, threads=1, draft=tiny) as llm:
        guessed = counted(llm, 5000)
        assert 0 < llm.stats.accepted_tokens < llm.stats.guessed_tokens
    cells = [pair for pair in plain | guessed if plain[pair] + guessed[pair] >= 10]
    assert len(cells) > 20
    statistic = sum(
        (plain[pair] - guessed[pair]) ** 2 / (plain[pair] + guessed[pair]) for pair in cells
    )
    # Mean and deviation of a chi-square distribution: 4 deviations are one chance in ten thousand.
    assert statistic < len(cells) + 4 * (2 * len(cells)) ** 0.5


def test_a_draft_must_speak_the_same_tokens(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [f"t{n}" for n in range(256)]
    monkeypatch.setattr("tiny_llama.vocabulary", lambda: [*tokens, *CONTROLS])
    other = write_tiny_llama(tmp_path / "other.gguf")
    with pytest.raises(ConfigError, match="has another vocabulary than"):
        LLM(tiny, threads=1, draft=other)


@pytest.mark.parametrize(
    ("tokens", "sort", "guess"),
    [
        ([1, 2, 3, 4, 5, 9, 1, 2, 3], 3, [4, 5, 9, 1]),
        ([1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3], 3, [8, 1, 2, 3]),  # the newest place
        ([0, 1, 2, 3, 4, 7, 5, 2, 3, 4, 8, 0, 1, 2, 3, 4], 5, [7, 5, 2, 3]),  # the longest one
        ([*range(20), *range(20)], 12, [0, 1, 2, 3]),
        ([6, 6, 6, 6], 3, [6, 6, 6, 6]),
        ([1, 2, 9, 1, 2], None, []),
        ([1], None, []),
    ],
)
def test_n_grams(tokens: list[int], sort: int | None, guess: list[int]) -> None:
    proposer, text = NgramProposer(), np.array(tokens, np.int32)
    prospect = proposer.prospect(text)
    assert (prospect.sort if prospect else None) == sort
    assert proposer.propose(text, 4) == guess
