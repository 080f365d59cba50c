"""LLM: how tokens are chosen, what is told about them, and other ways to decode."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot import LLM, Grammar, SamplingParams
from ingot.errors import (
    GrammarError,
    IncompleteTextError,
    LogitsError,
    ProcessorError,
    SamplingError,
    UnknownParameterError,
)
from ingot.sampling import logprobs_of
from tiny_llama import write_tiny_llama

PROMPT = [256, 104, 105, 32, 116]
HOT = {"temperature": 3.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = write_tiny_llama(tmp_path_factory.mktemp("llm") / "tiny.gguf")
    with LLM(path, threads=1) as opened:
        yield opened


def test_parameters_as_such_or_by_name(llm: LLM) -> None:
    params = SamplingParams(seed=3, max_tokens=9, **HOT)
    done = llm.generate(PROMPT, params)
    assert done.token_ids == llm.generate(PROMPT, seed=3, max_tokens=9, **HOT).token_ids
    assert done.token_ids == llm.generate(PROMPT, seed=3, max_completion_tokens=9, **HOT).token_ids
    assert "".join(llm.stream(PROMPT, params)) == done.text
    with pytest.raises(SamplingError, match=r"^seed is 4; it must be a field of params"):
        llm.generate(PROMPT, params, seed=4)
    with pytest.raises(SamplingError, match="it must be SamplingParams"):
        llm.generate(PROMPT, {"seed": 3})
    with pytest.raises(UnknownParameterError, match=r"'tempreature'.* did you mean 'temperature'"):
        llm.generate(PROMPT, tempreature=1)


def test_the_length_where_nothing_is_said(llm: LLM) -> None:
    assert len(llm.generate(PROMPT, temperature=0, ignore_eos=True).token_ids) == 128
    done = llm.generate(
        PROMPT, temperature=0, ignore_eos=True, max_tokens=None, context_overflow="stop"
    )
    assert done.finish_reason == "context"


def test_the_seed_is_told(llm: LLM) -> None:
    done = llm.generate(PROMPT, max_tokens=12, **HOT)
    again = llm.generate(PROMPT, max_tokens=12, seed=done.seed, **HOT)
    assert again.token_ids == done.token_ids
    assert llm.generate(PROMPT, max_tokens=1).seed != done.seed
    assert llm.stream(PROMPT, seed=7).seed == 7


def test_a_seed_gives_the_same_whatever_runs_beside(llm: LLM) -> None:
    alone = llm.generate(PROMPT, max_tokens=10, seed=5, **HOT).token_ids
    stream = llm.stream(PROMPT, max_tokens=10, seed=5, **HOT)
    for _ in stream:
        llm.generate("other", max_tokens=3, seed=9, **HOT)
    assert stream.token_ids == alone


def test_stop_strings_and_tokens(llm: LLM) -> None:
    whole = llm.generate(PROMPT, max_tokens=20, temperature=0)
    stop = whole.text[6:8]
    done = llm.generate(PROMPT, max_tokens=20, temperature=0, stop=[stop])
    assert done.text == whole.text.partition(stop)[0]
    assert (done.finish_reason, done.stopped_by) == ("stop", stop)
    assert "".join(llm.stream(PROMPT, max_tokens=20, temperature=0, stop=[stop])) == done.text
    token = whole.token_ids[5]
    ended = llm.generate(PROMPT, max_tokens=20, temperature=0, stop_token_ids=[token])
    assert ended.token_ids == whole.token_ids[: whole.token_ids.index(token)]
    assert ended.stopped_by == token


def test_a_time_limit(llm: LLM) -> None:
    done = llm.generate(PROMPT, max_tokens=100, temperature=0, time_limit=1e-9, ignore_eos=True)
    assert (len(done.token_ids), done.finish_reason) == (0, "time")


def test_logprobs_of_what_was_written(llm: LLM) -> None:
    done = llm.generate(PROMPT, max_tokens=6, seed=1, n_probs=4, post_sampling_probs=True)
    ids = [*PROMPT, *done.token_ids]
    expected = logprobs_of(llm.logits(ids)[len(PROMPT) - 1 : -1], done.token_ids)
    found = [entry.logprob for entry in done.logprobs]
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.02)  # other kernels
    assert [entry.token for entry in done.logprobs] == list(done.token_ids)
    assert all(len(entry.top) == 4 for entry in done.logprobs)
    assert all(entry.logprob <= 0.0 for entry in done.chain_logprobs)
    assert len(done.chain_logprobs) == len(done.token_ids)
    assert llm.generate(PROMPT, max_tokens=2).logprobs == ()


def test_scores_are_those_of_the_logits(llm: LLM) -> None:
    ids = [256, *range(90)]
    expected = logprobs_of(llm.logits(ids)[:-1], ids[1:])
    scored = llm.score(ids)
    assert scored.token_ids == tuple(ids)
    assert scored.logprobs == pytest.approx(expected.tolist(), abs=1e-9)
    assert scored.perplexity == pytest.approx(float(np.exp(-expected.mean())))
    assert llm.score(ids, first=40).logprobs == scored.logprobs[39:]
    assert llm.score(ids, first=91).logprobs == ()
    with pytest.raises(SamplingError, match="first is 92; it must be from 1 to 91"):
        llm.score(ids, first=92)
    assert llm.score([5]).logprobs == ()
    assert llm.score("hi").token_ids == (256, 104, 105)


def test_processors_and_their_errors(llm: LLM) -> None:
    def force(token_ids: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        logits[65 + len(token_ids) % 3] = 1e6

    done = llm.generate(PROMPT, max_tokens=4, processors=force)
    assert done.token_ids == (67, 65, 66, 67)

    def broken(token_ids: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        raise ZeroDivisionError(f"{len(token_ids)}, {len(logits)}")

    with pytest.raises(ProcessorError, match="broken failed"):
        llm.generate(PROMPT, processors=broken)
    with pytest.raises(LogitsError, match="banned"):
        llm.generate(PROMPT, logit_bias=dict.fromkeys(range(258), False))
    assert llm.generate(PROMPT, max_tokens=2).token_ids  # all is well again


@dataclass
class Point:
    x: int
    label: str = ""


def test_a_schema_gives_an_object(llm: LLM) -> None:
    for seed in range(30):
        done = llm.generate(PROMPT, schema=Point, seed=seed, max_tokens=100)
        if done.finish_reason == "stop":
            assert isinstance(done.parsed, Point)
            assert json.loads(done.text)["x"] == done.parsed.x
            break
    else:
        pytest.fail("no text came to its end")
    cut = llm.generate(PROMPT, schema=Point, max_tokens=3)
    assert cut.is_cut
    with pytest.raises(IncompleteTextError, match=r"cut off after 3 tokens.*'length'"):
        _ = cut.parsed
    chosen = llm.generate(PROMPT, schema={"enum": ["a", {"b": [1]}]}, seed=1)
    assert chosen.parsed in ("a", {"b": [1]})
    with pytest.raises(SamplingError, match="schema"):
        llm.generate(PROMPT, schema=Point, grammar=Grammar.regex("a"))
    with pytest.raises(GrammarError, match="grammar cannot be used"):
        llm.generate(PROMPT, schema={"type": "strng"})


def test_texts_follow_their_grammar(llm: LLM) -> None:
    pattern = r"(north|south)-[0-9]{2}!"
    for seed in range(5):
        done = llm.generate(PROMPT, grammar=Grammar.regex(pattern), seed=seed, **HOT)
        assert re.fullmatch(pattern, done.text)
        assert done.finish_reason == "stop"
        assert "".join(llm.stream(PROMPT, grammar=Grammar.regex(pattern), seed=seed, **HOT)) == (
            done.text
        )


def test_what_must_come_is_fed_in_one_step(llm: LLM) -> None:
    grammar = Grammar.regex("0123456789[ab]0123456789")
    done = llm.generate(PROMPT, grammar=grammar, temperature=0)
    assert len(done.token_ids) == 21
    # The first token is chosen from the prompt; with the nine behind it one step gives the
    # letter's logits; nothing has to be computed for what follows it.
    assert done.timings.steps == 1
    watched = llm.generate(PROMPT, grammar=grammar, temperature=0, logprobs=True)
    assert watched.token_ids == done.token_ids
    assert watched.timings.steps == 20
    assert len(watched.logprobs) == 21


def test_a_grammar_and_max_tokens(llm: LLM) -> None:
    grammar = Grammar.regex("0123456789")
    done = llm.generate(PROMPT, grammar=grammar, max_tokens=4)
    assert (done.text, done.finish_reason) == ("0123", "length")


# Other ways to decode


def greedy(llm: LLM, prompt: list[int], count: int) -> tuple[int, ...]:
    return llm.generate(prompt, temperature=0, max_tokens=count).token_ids


def test_guidance(llm: LLM) -> None:
    plain = greedy(llm, PROMPT, 8)
    same = llm.generate(PROMPT, temperature=0, max_tokens=8, negative_prompt=[256, 1, 2])
    assert same.token_ids == plain  # at a scale of 1
    other = llm.generate(
        PROMPT, temperature=0, max_tokens=8, negative_prompt=[256, 1, 2], cfg_scale=3.0
    )
    first, second = llm.logits(PROMPT)[-1], llm.logits([256, 1, 2])[-1]
    assert other.token_ids[0] == int((second + 3.0 * (first - second)).argmax())
    assert other.token_ids != plain
    ids = [*PROMPT, *other.token_ids[:-1]]
    negative = [256, 1, 2, *other.token_ids[:-1]]
    first, second = llm.logits(ids)[-1], llm.logits(negative)[-1]
    assert other.token_ids[-1] == int((second + 3.0 * (first - second)).argmax())
    for wrong in ({"cfg_scale": 2.0}, {"cfg_scale": float("nan"), "negative_prompt": "x"}):
        with pytest.raises(SamplingError, match="cfg_scale"):
            llm.generate(PROMPT, **wrong)


def test_one_beam_is_greedy(llm: LLM) -> None:
    (found,) = llm.beam_search(PROMPT, 1, max_tokens=10)
    assert found.token_ids == greedy(llm, PROMPT, 10)


def test_beams_have_the_probabilities_of_their_texts(llm: LLM) -> None:
    found = llm.beam_search(PROMPT, 5, max_tokens=9, length_penalty=0.0)
    assert len(found) == 5
    assert len({beam.token_ids for beam in found}) == 5
    assert found[0].logprob >= max(beam.logprob for beam in found)
    for beam in found:
        if len(beam.token_ids) == 9:  # one that ended counts its end, too
            scored = llm.score([*PROMPT, *beam.token_ids])
            assert sum(scored.logprobs[len(PROMPT) - 1 :]) == pytest.approx(beam.logprob, abs=0.05)
    one = llm.beam_search(PROMPT, 1, max_tokens=9)[0]
    assert found[0].logprob >= one.logprob - 1e-6
    assert llm.beam_search(PROMPT, 5, max_tokens=9, length_penalty=0.0) == found


def test_beams_cross_the_borders_of_blocks(llm: LLM) -> None:
    prompt = [(7 * i) % 256 for i in range(60)]
    found = llm.beam_search(prompt, 3, max_tokens=50, length_penalty=0.0)
    longest = max(found, key=lambda beam: len(beam.token_ids))
    scored = llm.score([*prompt, *longest.token_ids])
    assert sum(scored.logprobs[59:]) == pytest.approx(longest.logprob, abs=0.5)
    assert llm.generate(prompt, max_tokens=100, ignore_eos=True).token_ids  # the cache is free


def test_beams_end_with_the_context(llm: LLM) -> None:
    found = llm.beam_search([5] * 200, 1, max_tokens=500)
    assert len(found[0].token_ids) <= 57


def test_healing_needs_a_token_that_others_begin_with(llm: LLM) -> None:
    # Single bytes begin nothing else here: there is nothing to heal.
    plain = llm.generate("hi", temperature=0, max_tokens=5)
    assert llm.generate("hi", temperature=0, max_tokens=5, heal=True).token_ids == plain.token_ids
