"""From logits to a token: parameters, chains of samplers, log-probabilities, ends."""

from ingot.sampling.beam import Beam, BeamSearch
from ingot.sampling.build import ChainBuilder
from ingot.sampling.candidates import Candidates
from ingot.sampling.chain import SamplerChain
from ingot.sampling.grammar import Grammar
from ingot.sampling.grammar.typed import grammar_of, parse_as
from ingot.sampling.guidance import guide
from ingot.sampling.logprobs import TokenLogprobs, logprobs_of
from ingot.sampling.params import SamplingParams
from ingot.sampling.sampler import Sampler
from ingot.sampling.step import Choice, Choosing, choose
from ingot.sampling.stop import FinishReason, Piece, StopChecker

__all__ = [
    "Beam",
    "BeamSearch",
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
    "grammar_of",
    "guide",
    "logprobs_of",
    "parse_as",
]
