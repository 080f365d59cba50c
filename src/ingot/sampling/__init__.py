"""From logits to a token: parameters, chains of samplers, log-probabilities, ends."""

from ingot.sampling.build import ChainBuilder
from ingot.sampling.candidates import Candidates
from ingot.sampling.chain import SamplerChain
from ingot.sampling.grammar import Grammar
from ingot.sampling.logprobs import TokenLogprobs, logprobs_of
from ingot.sampling.params import SamplingParams
from ingot.sampling.sampler import Sampler
from ingot.sampling.step import Choice, Choosing, choose
from ingot.sampling.stop import FinishReason, Piece, StopChecker

__all__ = [
    "Candidates",
    "ChainBuilder",
    "Choice",
    "Choosing",
    "FinishReason",
    "Grammar",
    "Piece",
    "Sampler",
    "SamplerChain",
    "SamplingParams",
    "StopChecker",
    "TokenLogprobs",
    "choose",
    "logprobs_of",
]
