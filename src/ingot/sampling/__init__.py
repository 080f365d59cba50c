"""Sampling: from logits to a token. Parameters, sampler chains, log-probabilities, stop sequences.

Names that few requests need are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ingot.sampling.candidates import Candidates
from ingot.sampling.chain import SamplerChain
from ingot.sampling.chain_builder import ChainBuilder
from ingot.sampling.grammar.spec import Grammar
from ingot.sampling.logprobs import TokenLogprobs, logprobs_of
from ingot.sampling.params import SamplingParams, ThinkingBudget
from ingot.sampling.sampler import Sampler
from ingot.sampling.stop import FinishReason, Piece, StopChecker
from ingot.sampling.token_sampler import SampledToken, TokenSampler, sample_tokens

if TYPE_CHECKING:
    from ingot.sampling.beam import Beam as Beam
    from ingot.sampling.beam import BeamSearch as BeamSearch
    from ingot.sampling.grammar.python_types import grammar_of as grammar_of
    from ingot.sampling.grammar.python_types import parse_as as parse_as
    from ingot.sampling.guidance import guide as guide

_HOME = {
    "Beam": "ingot.sampling.beam",
    "BeamSearch": "ingot.sampling.beam",
    "grammar_of": "ingot.sampling.grammar.python_types",
    "guide": "ingot.sampling.guidance",
    "parse_as": "ingot.sampling.grammar.python_types",
}

__all__ = [
    "Beam",
    "BeamSearch",
    "Candidates",
    "ChainBuilder",
    "FinishReason",
    "Grammar",
    "Piece",
    "SampledToken",
    "Sampler",
    "SamplerChain",
    "SamplingParams",
    "StopChecker",
    "ThinkingBudget",
    "TokenLogprobs",
    "TokenSampler",
    "grammar_of",
    "guide",
    "logprobs_of",
    "parse_as",
    "sample_tokens",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ingot.sampling' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
