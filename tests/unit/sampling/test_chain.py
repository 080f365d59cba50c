"""Chains: what parameters make of them, order, seeds, text, copies; steps of many requests."""

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot.errors import LogitsError, ProcessorError, SamplingError
from ingot.sampling import (
    Candidates,
    ChainBuilder,
    SampledToken,
    Sampler,
    SamplerChain,
    SamplingParams,
    TokenSampler,
    sample_tokens,
)
from ingot.sampling.samplers.cuts import TopK
from ingot.sampling.samplers.draw import Draw
from ingot.sampling.samplers.penalties import Penalties
from ingot.sampling.samplers.temperature import Temperature
from ingot.tokenizer import Tokenizer

END = 262


def random_rows(count: int, size: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(scale=3, size=(count, size)).astype(np.float32)


def names(builder: ChainBuilder, **fields: object) -> list[str]:
    chain = builder.build(SamplingParams(**fields))
    return [type(sampler).__name__ for sampler in chain.samplers]


def generate(chain: SamplerChain, rows: NDArray[np.float32]) -> list[int]:
    tokens = []
    for row in rows:
        token = chain.apply(row.copy()).token
        chain.accept(token)
        tokens.append(token)
    return tokens


def test_the_default_chain(builder: ChainBuilder) -> None:
    assert names(builder) == ["TopK", "TopP", "MinP", "Temperature", "Draw"]


def test_the_default_order(builder: ChainBuilder) -> None:
    assert names(
        builder,
        logit_bias={1: 1.0},
        processors=print,
        repeat_penalty=1.1,
        dry_multiplier=0.8,
        top_n_sigma=1.0,
        typical_p=0.9,
        tfs_z=0.9,
        epsilon_cutoff=0.01,
        eta_cutoff=0.01,
        xtc_probability=0.5,
    ) == [
        "LogitBias", "Processors", "Penalties", "Dry", "TopNSigma", "TopK", "TypicalP",
        "TailFree", "Epsilon", "Eta", "TopP", "MinP", "Xtc", "Temperature", "Draw",
    ]  # fmt: skip


def test_an_order_of_the_request(builder: ChainBuilder) -> None:
    order = ["temperature", "min_p", "top_k"]
    assert names(builder, samplers=order) == ["Temperature", "MinP", "TopK", "Draw"]
    assert names(builder, samplers=[], logit_bias={1: 1}) == ["LogitBias", "Draw"]
    assert names(builder, samplers=["top_k", "infill"]) == ["TopK", "Infill", "Draw"]
    assert names(builder, samplers=["top_k", "logit_bias"], logit_bias={1: 1}) == [
        "TopK", "LogitBias", "Draw",
    ]  # fmt: skip


def test_what_is_switched_off_is_left_out(builder: ChainBuilder) -> None:
    off = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
    assert names(builder, **off) == ["Draw"]
    assert names(builder, **off | {"top_k": -1}) == ["Draw"]
    assert names(builder, **off, repeat_penalty=2.0, repeat_last_n=0) == ["Draw"]
    assert names(builder, **off, dry_multiplier=1.0, dry_penalty_last_n=0) == ["Draw"]
    assert names(builder, **off, xtc_probability=0.5, xtc_threshold=0.6) == ["Draw"]
    assert names(builder, **off, dynatemp_range=0.5) == ["DynamicTemperature", "Draw"]


def test_temperature_zero_is_greedy_and_keeps_what_may_change_the_likeliest(
    builder: ChainBuilder,
) -> None:
    assert names(builder, temperature=0) == ["Greedy"]
    assert names(builder, temperature=0, mirostat=2) == ["Greedy"]
    assert names(builder, temperature=0, repeat_penalty=1.1) == ["Penalties", "Greedy"]
    assert names(builder, temperature=0, xtc_probability=0.5) == ["Xtc", "Greedy"]
    assert names(builder, temperature=0, dynatemp_range=0.5)[-1] == "Draw"


def test_mirostat_and_adaptive_p_take_the_place_of_the_draw(builder: ChainBuilder) -> None:
    assert names(builder, mirostat=1, repeat_penalty=1.1) == [
        "Penalties", "Temperature", "Mirostat1",
    ]  # fmt: skip
    assert names(builder, mirostat=2, temperature=1) == ["Mirostat2"]
    assert names(builder, adaptive_target=0.3)[-1] == "AdaptiveP"


def test_ends_are_banned_on_request(builder: ChainBuilder) -> None:
    row = np.zeros(264, np.float32)
    row[END] = 9.0
    greedy = {"temperature": 0}
    assert builder.build(SamplingParams(**greedy)).apply(row.copy()).token == END
    assert builder.build(SamplingParams(**greedy, ignore_eos=True)).apply(row.copy()).token == 0
    short = builder.build(SamplingParams(**greedy, min_tokens=2, stop_token_ids=[0]))
    assert generate(short, np.stack([row] * 3)) == [1, 1, END]


def test_ids_outside_the_vocabulary_are_refused(builder: ChainBuilder) -> None:
    for fields in ({"logit_bias": {264: 1.0}}, {"stop_token_ids": [264]}):
        with pytest.raises(SamplingError, match=f"{next(iter(fields))} is 264; .* below 264"):
            builder.build(SamplingParams(**fields))


def test_the_same_seed_gives_the_same_tokens(builder: ChainBuilder) -> None:
    rows = random_rows(40, 264)
    first = generate(builder.build(SamplingParams(seed=7)), rows)
    assert generate(builder.build(SamplingParams(seed=7)), rows) == first
    assert generate(builder.build(SamplingParams(seed=8)), rows) != first
    unseeded = builder.build(SamplingParams())
    tokens = generate(unseeded, rows)
    assert generate(builder.build(SamplingParams(seed=unseeded.seed)), rows) == tokens


def test_seeds_of_no_request_are_as_long_as_a_json_number_allows(builder: ChainBuilder) -> None:
    seeds = [builder.build(SamplingParams()).seed for _ in range(200)]
    assert max(seeds).bit_length() == 53
    assert len(set(seeds)) == len(seeds)


def test_seeded_tokens_never_change() -> None:
    # The rows are made of whole numbers: the same on every machine, as the tokens must be.
    numbers = np.arange(20 * 500).reshape(20, 500) * 7919 % 97
    rows = (numbers / 8).astype(np.float32)
    chain = SamplerChain([TopK(40), Temperature(0.8), Draw()], seed=42)
    assert generate(chain, rows) == [
        341, 376, 336, 260, 256, 338, 32, 405, 27, 181,
        421, 345, 3, 24, 106, 468, 381, 194, 35, 322,
    ]  # fmt: skip


def test_a_step_gives_what_each_chain_gives_alone(builder: ChainBuilder) -> None:
    fields = [
        {}, {"temperature": 0}, {"top_k": 0}, {"mirostat": 2}, {"top_k": 0, "top_p": 1.0},
        {"top_n_sigma": 1.5}, {"repeat_penalty": 1.3}, {"top_k": 5}, {"xtc_probability": 0.5},
        {"top_k": 10**6},
    ]  # fmt: skip
    params = [SamplingParams(**f, seed=i) for i, f in enumerate(fields)]
    alone = [builder.build(p, [1, 2, 3]) for p in params]
    together = [TokenSampler(builder.build(p, [1, 2, 3])) for p in params]
    for step in range(12):
        rows = random_rows(len(params), 264, seed=step)
        expected = [chain.apply(row.copy()).token for chain, row in zip(alone, rows, strict=True)]
        for threads in (3, 1):
            choices = sample_tokens(together, rows.copy(), threads)
            assert [choice.token for choice in choices] == expected
        for chain, request, token in zip(alone, together, expected, strict=True):
            chain.accept(token)
            request.chain.accept(token)


def test_what_fails_fails_alone(builder: ChainBuilder) -> None:
    def broken(tokens: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        raise RuntimeError(f"{tokens} and {logits} are not usable")

    ban_all = dict.fromkeys(range(264), False)
    fields = [{}, {"processors": broken}, {}, {"logit_bias": ban_all}, {"top_k": 0}, {}]
    requests = [TokenSampler(builder.build(SamplingParams(**f, seed=1))) for f in fields]
    rows = random_rows(len(fields), 264)
    rows[2, 5] = np.nan
    rows[4, 6] = np.inf
    results = sample_tokens(requests, rows)
    kinds = [SampledToken, ProcessorError, LogitsError, LogitsError, LogitsError, SampledToken]
    assert [type(result) for result in results] == kinds
    assert "NaN" in str(results[2])
    assert "banned" in str(results[3])
    assert sample_tokens([], np.zeros((0, 264), np.float32)) == []


def test_a_single_request(builder: ChainBuilder) -> None:
    rows = random_rows(1, 264)
    sampler = TokenSampler(builder.build(SamplingParams(temperature=0)))
    assert sampler.sample(rows.copy()) == SampledToken(int(rows.argmax()))
    with pytest.raises(LogitsError, match="banned"):
        sampler.sample(np.full_like(rows, -np.inf))


class Noting(Sampler):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.notes: list[object] = []

    def apply(self, candidates: Candidates) -> None:
        candidates.sampled = 0

    def prepare(self) -> None:
        self.notes.append("prepare")

    def accept(self, token: int) -> None:
        self.notes.append(token)

    def reset(self) -> None:
        self.notes.append("reset")


def test_every_sampler_is_told_what_happens() -> None:
    samplers = [Noting(), TopK(3), Noting()]
    chain = SamplerChain(samplers, seed=1)
    chain.prepare()
    chain.accept(7)
    chain.accept_all([8, 9])
    chain.reset()
    assert samplers[0].notes == samplers[2].notes == ["prepare", 7, 8, 9, "reset"]


def test_the_text_so_far(letters: Tokenizer) -> None:
    prompt = list(range(100))
    chain = ChainBuilder(letters).build(SamplingParams(), prompt)
    assert (chain.token_ids.tolist(), chain.generated) == (prompt, 0)
    chain.accept_all(range(150, 240))
    chain.accept_all(range(150, 240))
    written = [*range(150, 240)] * 2
    assert (chain.token_ids.tolist(), chain.generated) == (prompt + written, 180)
    copy = chain.clone()
    copy.accept(5)
    assert (copy.token_ids.tolist(), copy.generated) == ([*prompt, *written, 5], 181)
    assert chain.generated == 180
    chain.reset()
    assert (chain.token_ids.tolist(), chain.generated) == (prompt, 0)


def test_penalties_see_the_prompt_and_what_was_written() -> None:
    chain = SamplerChain([Penalties(3, 1.0, 0.0, 1.0), TopK(9), Draw()], seed=1, prompt=[0, 1])
    assert chain.apply(np.zeros(5, np.float32)).row.tolist() == [-1, -1, 0, 0, 0]
    chain.accept_all([2, 2])
    assert chain.apply(np.zeros(5, np.float32)).row.tolist() == [0, -1, -2, 0, 0]


def test_copies_go_on_alike_or_under_another_seed(builder: ChainBuilder) -> None:
    rows = random_rows(60, 264)
    chain = builder.build(SamplingParams(seed=3, mirostat=2))
    generate(chain, rows[:20])
    same, other = chain.clone(), chain.clone(seed=4)
    expected = generate(chain, rows[20:])
    assert generate(same, rows[20:]) == expected
    assert generate(other, rows[20:]) != expected
    chain.reset()
    assert generate(chain, rows[:20]) + generate(chain, rows[20:])[:0] == generate(
        builder.build(SamplingParams(seed=3, mirostat=2)), rows[:20]
    )


def test_applying_twice_gives_the_same(builder: ChainBuilder) -> None:
    row = random_rows(1, 264)[0]
    fields = ({}, {"mirostat": 1}, {"adaptive_target": 0.2}, {"dry_multiplier": 1.0})
    for field in fields:
        chain = builder.build(SamplingParams(seed=1, **field), [4, 5, 6] * 4)
        assert chain.apply(row.copy()).token == chain.apply(row.copy()).token
