"""Ways to decode and structured output, with a model that has something to say."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ingot import LLM, Grammar, SamplingParams
from ingot.sampling import Candidates
from ingot.sampling.samplers.infill import Infill

FRANCE = "The capital of France is"


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path, context=512) as opened:
        yield opened


def test_one_beam_is_greedy(llm: LLM) -> None:
    greedy = llm.generate(FRANCE, temperature=0, max_tokens=12)
    (found,) = llm.beam_search(FRANCE, 1, max_tokens=12)
    assert found.text == greedy.text
    assert "Paris" in found.text


def test_more_beams_find_a_likelier_text(llm: LLM) -> None:
    prompt = "A short poem about the sea:\n"
    one = llm.beam_search(prompt, 1, max_tokens=12)[0]
    four = llm.beam_search(prompt, 4, max_tokens=12, length_penalty=0.0)
    assert four[0].logprob > one.logprob
    scored = llm.score([*llm.tokenizer.encode(prompt), *four[0].token_ids])
    own = scored.logprobs[-len(four[0].token_ids) :]
    if len(four[0].token_ids) == 12:
        assert sum(own) == pytest.approx(four[0].logprob, abs=0.2)


def test_guidance_goes_away_from_the_other_prompt(llm: LLM) -> None:
    prompt, other = "The weather today is sunny and", "The weather today is cold and"
    steered = llm.generate(
        prompt, temperature=0, max_tokens=12, negative_prompt=other, cfg_scale=2.5
    )
    ids = [llm.tokenizer.encode(text) for text in (prompt, other)]

    def advantage(tokens: tuple[int, ...]) -> float:
        """How much likelier a text is after the prompt than after the other one."""
        first, second = (
            sum(llm.score([*beginning, *tokens]).logprobs[len(beginning) - 1 :])
            for beginning in ids
        )
        return first - second

    plain = llm.generate(prompt, temperature=0, max_tokens=12)
    assert advantage(steered.token_ids) > advantage(plain.token_ids)


def test_healing_completes_a_token_that_was_cut(llm: LLM) -> None:
    prompt = "My website is at https:"
    ids = llm.tokenizer.encode(prompt)
    plain = llm.generate(prompt, temperature=0, max_tokens=4)
    healed = llm.generate(prompt, temperature=0, max_tokens=4, heal=True)
    # The last token, ":", is taken back: the text goes on with "://" as one token.
    assert healed.text.startswith("//")
    assert llm.tokenizer.token_bytes(healed.token_ids[0]) == b"://"
    assert llm.tokenizer.decode([*ids, *plain.token_ids]).startswith(prompt)
    assert plain.token_ids != healed.token_ids


def test_infill_leaves_little_to_choose(llm: LLM) -> None:
    row = llm.logits(llm.tokenizer.encode(FRANCE))[-1]
    candidates = Candidates(row.copy(), np.zeros(0, np.int32))
    candidates.keep_top(40)
    tokenizer = llm.tokenizer
    assert tokenizer.eos_id is not None
    Infill(tokenizer.eog_ids, tokenizer.eos_id, tokenizer.token_bytes).apply(candidates)
    left = set(candidates.candidate_ids().tolist())
    assert len(left) <= 4
    assert int(row.argmax()) in left
    params = SamplingParams(samplers=["top_k", "infill"], seed=1, max_tokens=5)
    assert "Paris" in llm.generate(FRANCE, params).text


def test_scores_know_a_sentence_from_a_jumble(llm: LLM) -> None:
    sentence = llm.score("The cat sat on the mat and looked at the dog.")
    jumble = llm.score("mat the on dog. sat looked The and at cat the")
    assert sentence.perplexity < jumble.perplexity / 3


@dataclass
class City:
    name: str
    country: str
    capital: bool


def test_an_object_is_filled_in(llm: LLM) -> None:
    prompt = 'Paris as JSON with "name", "country" and "capital":\n'
    done = llm.generate(prompt, schema=City, temperature=0, max_tokens=80)
    assert isinstance(done.parsed, City)
    assert done.parsed.name in done.text
    assert done.timings.steps < len(done.token_ids)  # what must come was not computed


def test_a_lazy_grammar_waits_for_its_marker(llm: LLM) -> None:
    grammar = Grammar.regex(r"\[[0-9]{3}\]").after("code ")
    done = llm.generate(
        "Say the code.\nThe code is: ", grammar=grammar, temperature=0.7, seed=3, max_tokens=60
    )
    for match in re.finditer("code ", done.text):
        rest = done.text[match.end() :]
        assert re.match(r"\[[0-9]{3}\]", rest) or len(rest) < 5, done.text
