"""Chains beside llama.cpp's: the same candidates with the same probabilities.

The logits are made to look like a model's: a few likely tokens, a long tail.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from llama_cpp_sampling import Job, Left, Step, run
from numpy.typing import NDArray

from ingot.sampling import ChainBuilder, SamplingParams
from ingot.tokenizer import Tokenizer

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(
        importlib.util.find_spec("llama_cpp") is None,
        reason="llama.cpp is not here: make test-oracle",
    ),
]

ROWS = 12
OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
TEXT = "one two three, one two three: one two. three one two three. one two" * 2

# Parameters, and the chain that llama.cpp makes of them.
CASES: list[tuple[str, dict[str, object], tuple[Step, ...]]] = [
    (
        "default",
        {},
        (("top_k", 40), ("top_p", 0.95, 0), ("min_p", 0.05, 0), ("temp", 0.8)),
    ),
    (
        # Without top-n-sigma: after it llama.cpp's typical sampling takes the entropy for NaN.
        "everything",
        {
            "logit_bias": {11: 3.0, 13: False, 464: -1.5},
            "repeat_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.1,
            "dry_multiplier": 0.8, "top_k": 60, "typical_p": 0.9,
            "top_p": 0.9, "min_p": 0.02, "xtc_probability": 1.0, "xtc_threshold": 0.1,
            "temperature": 0.7, "dynatemp_range": 0.3, "dynatemp_exponent": 1.2,
        },
        (
            ("logit_bias", ((11, 3.0), (13, -np.inf), (464, -1.5))),
            ("penalties", 64, 1.1, 0.1, 0.2),
            ("dry", 0.8, 1.75, 2, 1024, ("\n", ":", '"', "*")),
            ("top_k", 60),
            ("typical", 0.9, 0),
            ("top_p", 0.9, 0),
            ("min_p", 0.02, 0),
            ("xtc", 1.0, 0.1, 0, 1),
            ("temp_ext", 0.7, 0.3, 1.2),
        ),
    ),
    ("top_k", OFF | {"top_k": 7}, (("top_k", 7),)),
    # llama.cpp sums 50,000 probabilities as floats: no cut here is within 1e-3 of its bound.
    ("top_p", OFF | {"top_p": 0.7}, (("top_p", 0.7, 0),)),
    ("top_p min_keep", OFF | {"top_p": 0.01, "min_keep": 5}, (("top_p", 0.01, 5),)),
    ("min_p", OFF | {"min_p": 0.1}, (("min_p", 0.1, 0),)),
    ("typical", OFF | {"typical_p": 0.5}, (("typical", 0.5, 0),)),
    ("xtc", OFF | {"xtc_probability": 1.0, "xtc_threshold": 0.05}, (("xtc", 1.0, 0.05, 0, 1),)),
    ("top_n_sigma", OFF | {"top_n_sigma": 1.5}, (("top_n_sigma", 1.5),)),
    ("temperature", OFF | {"temperature": 1.7}, (("temp", 1.7),)),
    (
        "dynamic temperature",
        OFF | {"temperature": 0.8, "dynatemp_range": 0.5},
        (("temp_ext", 0.8, 0.5, 1.0),),
    ),
    (
        "penalties",
        OFF | {"repeat_penalty": 1.3, "repeat_last_n": 20, "presence_penalty": 0.5},
        (("penalties", 20, 1.3, 0.0, 0.5),),
    ),
    (
        "dry",
        OFF | {"dry_multiplier": 1.5, "dry_allowed_length": 1},
        (("dry", 1.5, 1.75, 1, 1024, ("\n", ":", '"', "*")),),
    ),
    (
        "dry with breakers across tokens",
        OFF | {"dry_multiplier": 1.5, "dry_sequence_breakers": [": one two"]},
        (("dry", 1.5, 1.75, 2, 1024, (": one two",)),),
    ),
    (
        "infill",
        OFF | {"top_k": 40, "samplers": ["top_k", "infill"]},
        (("top_k", 40), ("infill",)),
    ),
]  # fmt: skip


def rows(size: int) -> NDArray[np.float32]:
    random = np.random.default_rng(5)
    made = random.normal(scale=2.5, size=(ROWS, size))
    made += np.where(random.random((ROWS, size)) < 2e-4, random.uniform(5, 15, (ROWS, size)), 0)
    return made.astype(np.float32)


@pytest.fixture(scope="module")
def model(shared: Path) -> Path:
    return shared / "tokenizers" / "gpt-2.gguf"


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Tokenizer:
    return Tokenizer.from_gguf(model)


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return powers / powers.sum()


def distribution(ids: NDArray[np.int32], logits: NDArray[np.float32], size: int) -> NDArray:
    p = np.zeros(size)
    p[ids] = softmax(logits)
    return p


def left_by(builder: ChainBuilder, params: SamplingParams, row: NDArray, tokens: list[int]) -> Left:
    """The candidates before the last sampler, which chooses one."""
    chain = builder.build(params, tokens)
    candidates = chain.begin(row.copy())
    for sampler in chain.samplers[:-1]:
        sampler.apply(candidates)
    return Left(candidates.candidate_ids(), candidates.logits)


@pytest.mark.parametrize(
    ("fields", "steps"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_the_distribution_is_llama_cpps(
    model: Path, tokenizer: Tokenizer, fields: dict[str, object], steps: tuple[Step, ...]
) -> None:
    size = tokenizer.vocab_size
    tokens = tokenizer.encode(TEXT)
    logits = rows(size)
    peers = run(model, [Job(row, steps, tuple(tokens)) for row in logits])
    builder = ChainBuilder(tokenizer)
    changed = 0
    for row, peer in zip(logits, peers, strict=True):
        own = left_by(builder, SamplingParams(**fields, seed=1), row, tokens)
        expected = distribution(peer.ids, peer.logits, size)
        found = distribution(own.ids, own.logits, size)
        np.testing.assert_allclose(found, expected, rtol=5e-4, atol=1e-7)
        changed += not np.allclose(expected, softmax(row), rtol=1e-3)
    assert changed > ROWS // 2  # the case did something


def test_mirostat_leaves_the_same_candidates(model: Path, tokenizer: Tokenizer) -> None:
    size = tokenizer.vocab_size
    logits = rows(size)
    builder = ChainBuilder(tokenizer)
    for version, step in (
        (1, ("mirostat", size, 1, 3.0, 0.1, 100)),
        (2, ("mirostat_v2", 1, 3.0, 0.1)),
    ):
        peers = run(model, [Job(row, (step,)) for row in logits])
        params = SamplingParams(mirostat=version, mirostat_tau=3.0, temperature=1.0, seed=1)
        for row, peer in zip(logits, peers, strict=True):
            own = builder.build(params).apply(row.copy())
            assert sorted(own.candidate_ids().tolist()) == sorted(peer.ids.tolist())


def test_adaptive_p_makes_the_same_distribution(model: Path, tokenizer: Tokenizer) -> None:
    size = tokenizer.vocab_size
    logits = rows(size)
    steps: tuple[Step, ...] = (("top_k", 40), ("adaptive_p", 0.3, 0.9, 1))
    peers = run(model, [Job(row, steps) for row in logits])
    params = SamplingParams(**OFF | {"top_k": 40, "adaptive_target": 0.3, "seed": 1})
    builder = ChainBuilder(tokenizer)
    for row, peer in zip(logits, peers, strict=True):
        own = builder.build(params).apply(row.copy())
        np.testing.assert_allclose(
            distribution(own.candidate_ids(), own.logits, size),
            distribution(peer.ids, peer.logits, size),
            rtol=1e-4,
            atol=1e-7,
        )


def test_the_default_parameters_are_llama_cpps_own(tokenizer: Tokenizer) -> None:
    chain = ChainBuilder(tokenizer).build(SamplingParams())
    kinds = [type(sampler).__name__ for sampler in chain.samplers]
    assert kinds == ["TopK", "TopP", "MinP", "Temperature", "Draw"]
