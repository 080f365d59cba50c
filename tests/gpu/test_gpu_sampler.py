"""The GPU samples the tokens that the sampler chains give on the CPU from the same logits."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingot import _native
from ingot.backends.device_sampler import SamplingPlan
from ingot.backends.gpu import find_device
from ingot.backends.gpu.memory import DeviceMemory
from ingot.backends.gpu.sampler import ROW_NUMBERS, DevicePlans, HostPlans, SamplerWork, accepts
from ingot.backends.gpu.variants import Kernels
from ingot.errors import IngotError, LogitsError
from ingot.sampling import SamplerChain, SamplingParams, TokenSampler, sample_tokens
from ingot.sampling.chain_builder import _FACTORIES, _last
from ingot.sampling.fused_tail import token_or_error
from ingot.sampling.plan import sampling_plan
from ingot.sampling.samplers.logit_bias import LogitBias

DEVICE = find_device()
Logits = NDArray[np.float32]
GREEDY: dict[str, Any] = {"temperature": 0.0}
KINDS = ["normal", "ties", "zeros", "equal", "few", "huge"]
HOT = {"temperature": 1.5, "top_k": 256, "top_p": 1.0, "min_p": 0.0}


def chain(params: SamplingParams, text: Sequence[int] = (), generated: int = 0) -> SamplerChain:
    """As the builder makes it, without a vocabulary."""
    greedy = params.temperature == 0.0
    names = ("penalties",) if greedy else ("penalties", "top_k", "top_p", "min_p", "temperature")
    made = [_FACTORIES[name](params) for name in names]
    samplers = [sampler for sampler in made if sampler is not None]
    if params.logit_bias:
        samplers.insert(0, LogitBias(params.logit_bias))
    before = len(text) - generated
    found = SamplerChain([*samplers, _last(params)], seed=params.seed, prompt=text[:before])
    found.accept_all(text[before:])
    return found


def on_device(plans: Sequence[SamplingPlan | None], logits: Logits) -> list[int]:
    """Tokens of all rows, from the kernels."""
    rows, vocabulary = logits.shape
    assert all(plan and accepts(plan, vocabulary) for plan in plans)
    work = SamplerWork.of(DeviceMemory(DEVICE.torch), vocabulary, 64)
    work.keys.fill_(-7)  # what was there before must not matter
    work.best.fill_(-7)
    work.powers.fill_(float("nan"))
    twin = torch.zeros(rows * ROW_NUMBERS, dtype=torch.int32)
    HostPlans(twin).fill(plans)
    work.logits[:rows] = torch.from_numpy(logits).to(DEVICE.torch)
    with np.errstate(over="ignore"):  # of the interpreter's divisions
        work.sample(DevicePlans.of(twin.to(DEVICE.torch)), Kernels(DEVICE))
    found: list[int] = work.tokens[:rows].tolist()
    return found


Sampled = int | str  # a token, or what is wrong with the row


def on_both(
    samplers: Sequence[TokenSampler], logits: Logits
) -> tuple[list[Sampled], list[Sampled]]:
    """What the kernels sample, and what the chains do."""
    plans = [sampling_plan(each) for each in samplers]
    device = [token_or_error(token) for token in on_device(plans, logits.copy())]
    host = sample_tokens(samplers, logits.copy())
    return (
        [str(found) if isinstance(found, LogitsError) else found for found in device],
        [str(found) if isinstance(found, IngotError) else found.token for found in host],
    )


def rows_of(kind: str, rows: int, vocabulary: int, rng: np.random.Generator) -> Logits:
    normal = rng.normal(0, 3, (rows, vocabulary)).astype(np.float32)
    match kind:
        case "ties":
            return np.round(normal)
        case "zeros":
            return np.where(normal < -3, normal, np.copysign(np.float32(0), normal))
        case "equal":
            return np.full_like(normal, -2.5)
        case "few":
            return np.where(rng.random(normal.shape) < 5 / vocabulary, normal, -np.inf)
        case "huge":
            return normal * np.float32(1e37)
        case _:
            return normal


PARAMS: list[Mapping[str, Any]] = [
    GREEDY,
    {},
    HOT,
    {"top_k": 1},
    {"top_k": 2, "min_keep": 2, "top_p": 0.0},
    {"top_p": 0.0},
    {"top_k": 256, "top_p": 0.3, "min_p": 0.0, "temperature": 1.0},
    {"top_k": 17, "top_p": 1.0, "min_p": 0.2, "temperature": 1e-30},
    {"temperature": 1e-44},
    {"temperature": 1e4, "top_k": 100, "min_p": 1.0, "min_keep": 9},
    {"temperature": 0.01, "top_k": 255, "min_keep": 300},
    {"repeat_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.1},
    {**GREEDY, "repeat_penalty": 0.5, "repeat_last_n": -1},
    {"logit_bias": {5: 3.0, 4100: 9.0, 8712: 8.0, 17: -np.inf}},
]


@pytest.mark.parametrize("kind", KINDS)
def test_all_parameters(kind: str) -> None:
    """In one launch, in a vocabulary of an odd size in three slices."""
    rng = np.random.default_rng(KINDS.index(kind))
    vocabulary = 8713
    logits = rows_of(kind, len(PARAMS), vocabulary, rng)
    text = rng.integers(0, vocabulary, 90).tolist()
    likeliest = logits.argmax(axis=1).tolist()
    samplers = [
        TokenSampler(chain(SamplingParams(seed=number, **params), [*text, *likeliest], number))
        for number, params in enumerate(PARAMS)
    ]
    device, host = on_both(samplers, logits)
    assert device == host


@settings(max_examples=15 if DEVICE.interpreted else 500, deadline=None)
@given(
    vocabulary=st.integers(1, 5000) | st.sampled_from([1, 2, 16, 255, 256, 4095, 4096, 4097]),
    kind=st.sampled_from(["normal", "ties", "zeros", "few"]),
    fields=st.lists(
        st.fixed_dictionaries(
            {
                "top_k": st.integers(1, 256),
                "top_p": st.floats(0, 1),
                "min_p": st.floats(0, 1),
                "temperature": st.floats(0, 3),
                "min_keep": st.integers(0, 20),
                "seed": st.integers(0, 2**64 - 1),
            }
        ),
        min_size=1,
        max_size=3,
    ),
    number=st.integers(0, 2**32),
)
def test_any_parameters(
    vocabulary: int, kind: str, fields: list[dict[str, Any]], number: int
) -> None:
    rng = np.random.default_rng(number)
    logits = rows_of(kind, len(fields), vocabulary, rng)
    samplers = [TokenSampler(chain(SamplingParams(**each), range(3), 2)) for each in fields]
    device, host = on_both(samplers, logits)
    assert device == host


@pytest.mark.skipif(DEVICE.interpreted, reason="the interpreter takes minutes for it")
@pytest.mark.parametrize("vocabulary", [32000, 151936, 262144, 500000])
def test_large_vocabularies(vocabulary: int) -> None:
    """64 rows, of all kinds."""
    rng = np.random.default_rng(vocabulary)
    fields = [PARAMS[row % len(PARAMS)] for row in range(64)]
    for kind in KINDS:
        logits = rows_of(kind, len(fields), vocabulary, rng)
        text = rng.integers(0, vocabulary, 40).tolist()
        chains = [chain(SamplingParams(seed=n, **each), text) for n, each in enumerate(fields)]
        device, host = on_both([TokenSampler(each) for each in chains], logits)
        assert device == host


@pytest.mark.parametrize("count", [37, 256])
def test_sums_to_the_last_bit(count: int) -> None:
    """Random numbers and shares just where one more token is taken."""
    rows = 24 if DEVICE.interpreted else 64
    rng = np.random.default_rng(count)
    logits = np.sort(rng.normal(0, 1, 256).astype(np.float32))[::-1][np.newaxis]
    powers = _native.exp((logits[0, :count] - logits[0, 0].astype(np.float64)).astype(np.float64))
    sums = np.cumsum(powers)
    plans = []
    for row in range(rows):
        at = float(sums[rng.integers(0, count)] / sums[-1])
        at = float(np.clip(at + rng.integers(-1, 2) * np.spacing(at), 0.0, 1.0 - 2.0**-53))
        share, uniform = (at, 1.0 - 2.0**-53) if row % 2 else (2.0, at)
        plans.append(SamplingPlan(count, share, math.inf, 1, 1.0, uniform))
    expected = np.empty(rows, np.int32)
    _native.sample_rows(
        np.ascontiguousarray(logits),
        np.zeros(rows, np.int32),
        np.full(rows, count, np.int32),
        np.ones(rows, np.int32),
        np.array([(c.share, c.distance, c.temperature, c.uniform) for c in plans]),
        expected,
        1,
    )
    found = on_device(plans, np.repeat(logits, rows, axis=0))
    assert found == expected.tolist()
    assert len(set(found)) > rows // 4


def test_draws_differ() -> None:
    """A test that compares could compare the same token every time."""
    logits = np.repeat(rows_of("normal", 1, 300, np.random.default_rng(0)), 8, axis=0)
    chains = [chain(SamplingParams(seed=seed, **HOT)) for seed in range(8)]
    device, host = on_both([TokenSampler(each) for each in chains], logits)
    assert device == host
    assert len(set(device)) > 4


@pytest.mark.parametrize("params", [GREEDY, {}, HOT])
def test_rows_without_a_token(params: Mapping[str, Any]) -> None:
    """What is wrong with a row is that row's error."""
    logits = rows_of("normal", 5, 5000, np.random.default_rng(1))
    logits[0, 4999] = np.nan
    logits[1, 17] = np.inf
    logits[2] = -np.inf
    logits[3, 100:] = -np.inf
    device, host = on_both([TokenSampler(chain(SamplingParams(seed=1, **params)))] * 5, logits)
    assert device == host
    assert [isinstance(each, str) for each in device] == [True, True, True, False, False]


def test_rows_without_a_plan() -> None:
    """Their logits and tokens stay as they are."""
    logits = rows_of("normal", 3, 5000, np.random.default_rng(2))
    work = SamplerWork.of(DeviceMemory(DEVICE.torch), 5000, 64)
    work.tokens.fill_(77)
    work.logits[:3] = torch.from_numpy(logits).to(DEVICE.torch)
    twin = torch.zeros(3 * ROW_NUMBERS, dtype=torch.int32)
    params = SamplingParams(seed=1, repeat_penalty=2.0, temperature=0.0)
    plan = sampling_plan(TokenSampler(chain(params, [1, 2, 3])))
    HostPlans(twin).fill([plan] * 3)
    HostPlans(twin).fill([None, plan])
    work.sample(DevicePlans.of(twin.to(DEVICE.torch)), Kernels(DEVICE))
    assert work.tokens[:3].tolist()[::2] == [77, 77]
    np.testing.assert_array_equal(work.logits[:3:2].cpu().numpy(), logits[::2])


def test_what_is_left_to_the_host() -> None:
    text = list(range(200))
    assert sampling_plan(TokenSampler(chain(SamplingParams(top_k=0)))) is None
    assert sampling_plan(TokenSampler(chain(SamplingParams()), logprobs=True)) is None
    penalized = SamplingParams(repeat_penalty=1.1, repeat_last_n=-1)
    assert sampling_plan(TokenSampler(chain(penalized)), ahead=1) is None
    short = SamplerChain([LogitBias({}, [1], min_tokens=3), *chain(SamplingParams()).samplers])
    assert sampling_plan(TokenSampler(short), ahead=2) is None
    assert sampling_plan(TokenSampler(short), ahead=3) is not None
    for params, count, taken in (
        (SamplingParams(top_k=256), 0, True),
        (SamplingParams(top_k=257), 0, False),
        (penalized, 128, True),
        (penalized, 129, False),
    ):
        plan = sampling_plan(TokenSampler(chain(params, text[:count])))
        assert plan is not None
        assert accepts(plan, 262144) is taken
    plan = sampling_plan(TokenSampler(chain(SamplingParams())))
    assert plan is not None
    assert not accepts(plan, 1 << 20)
