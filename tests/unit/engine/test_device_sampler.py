"""Tokens that the backend samples: the same texts, beside requests that only the host can serve."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device_sampler import CpuSampler
from numpy.typing import NDArray

from holding import held
from ingot import LLM
from ingot.errors import LogitsError
from ingot.sampling import Grammar

PROMPT = [256, 104, 105, 32, 116]
PLAIN: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 2.0},
    {"temperature": 1.0, "top_k": 200, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 1.5, "repeat_penalty": 1.3, "frequency_penalty": 0.3},
    {"temperature": 0, "presence_penalty": 1.0, "repeat_last_n": -1},
    {"temperature": 2.0, "logit_bias": {5: 3.0, 9: -1.0}, "ignore_eos": True},
]
HOST: list[dict[str, Any]] = [
    {"temperature": 2.0, "top_k": 0},
    {"temperature": 2.0, "n_probs": 2},
    {"temperature": 2.0, "typical_p": 0.5},
    {"temperature": 2.0, "logit_bias": {5: 3.0}, "presence_penalty": 1.0},
    {"temperature": 2.0, "min_tokens": 24},
    {"temperature": 2.0, "dry_multiplier": 1.0},
    {"temperature": 0, "grammar": Grammar.regex("[a-z ]*")},
    {"temperature": 2.0, "processors": [lambda _, logits: logits.__imul__(0.5)]},
    {"temperature": 2.0, "negative_prompt": [256, 9], "cfg_scale": 1.5},
]


def run(llm: LLM, fields: list[dict[str, Any]]) -> list[tuple[int, ...]]:
    """All at once."""
    requests = [
        llm.stream([*PROMPT, number], max_tokens=24, seed=number, **each)
        for number, each in enumerate(fields)
    ]
    return [request.result().token_ids for request in requests]


def test_the_same_texts(tiny: Path) -> None:
    with LLM(tiny, threads=1) as llm:
        expected = run(llm, PLAIN)
        assert len(set(expected)) == len(PLAIN)
    with LLM(tiny, threads=1) as llm:
        sampler = CpuSampler.of(llm)
        assert run(llm, PLAIN) == expected
        assert sampler.sampled >= 20 * len(PLAIN)


def test_beside_texts_of_the_host(tiny: Path) -> None:
    fields = [each for pair in zip(HOST, [*PLAIN, *PLAIN], strict=False) for each in pair]
    with LLM(tiny, threads=1) as llm:
        expected = run(llm, fields)
    with LLM(tiny, threads=1) as llm:
        sampler = CpuSampler.of(llm)
        assert run(llm, fields) == expected
        assert 10 * len(HOST) < sampler.sampled <= 24 * len(HOST)


def test_what_the_backend_does_not_accept(tiny: Path) -> None:
    with LLM(tiny, threads=1) as llm:
        expected = run(llm, PLAIN)
    with LLM(tiny, threads=1) as llm:
        sampler = CpuSampler.of(llm, most=40)
        assert run(llm, PLAIN) == expected
        assert 20 * 5 < sampler.sampled <= 24 * 5


@pytest.mark.parametrize(("value", "message"), [(np.nan, "NaN"), (-np.inf, "banned")])
def test_an_error_is_one_text_s(tiny: Path, value: float, message: str) -> None:
    with LLM(tiny, threads=1) as llm:
        expected = run(llm, PLAIN)

    def spoil(step: int, logits: NDArray[np.float32]) -> None:
        if step == 3:
            logits[1] = value

    with LLM(tiny, threads=1) as llm:
        CpuSampler.of(llm, spoil=spoil)
        with held(llm):  # or else the first would be alone in the step that is spoilt
            requests = [
                llm.stream([*PROMPT, number], max_tokens=24, seed=number, **each)
                for number, each in enumerate(PLAIN)
            ]
        with pytest.raises(LogitsError, match=message):
            requests[1].result()
        found = [request.result().token_ids for i, request in enumerate(requests) if i != 1]
        assert found == [each for i, each in enumerate(expected) if i != 1]
        assert llm.stats.blocks_held == 0


def test_ends_of_the_context(tiny: Path) -> None:
    """Also those that go on behind it."""
    for overflow in ("stop", "shift"):
        texts = []
        for on_device in (False, True):
            with LLM(tiny, threads=1, context=64) as llm:
                if on_device:
                    CpuSampler.of(llm)
                done = llm.generate(
                    PROMPT, max_tokens=100, temperature=3.0, seed=1, context_overflow=overflow
                )
                texts.append((done.token_ids, done.finish_reason))
        assert texts[0] == texts[1]
