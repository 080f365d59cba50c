"""ChainBuilder: from sampling parameters to a sampler chain.

In: `SamplingParams` and a tokenizer. Out: a `SamplerChain` with the samplers that have something
to do, in the order of the parameters. Whatever depends on the vocabulary is checked here: token
ids and the grammar. Samplers that few requests use are imported when one asks for them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from ingot.arrays import Ints
from ingot.errors import SamplingError
from ingot.once import once
from ingot.sampling.chain import SamplerChain
from ingot.sampling.grammar.spec import Grammar
from ingot.sampling.params import SamplingParams, ThinkingBudget
from ingot.sampling.sampler import Sampler
from ingot.sampling.samplers.cuts import (
    Epsilon,
    Eta,
    MinP,
    TailFree,
    TopK,
    TopNSigma,
    TopP,
    TypicalP,
    Xtc,
)
from ingot.sampling.samplers.draw import AdaptiveP, Draw, Greedy
from ingot.sampling.samplers.temperature import DynamicTemperature, Temperature
from ingot.tokenizer import Tokenizer

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ingot.sampling.grammar.compile import GrammarCompiler
    from ingot.sampling.grammar.compile_worker import CompiledGrammar
    from ingot.sampling.grammar.state import GrammarState
    from ingot.sampling.samplers.token_healing import TokenIndex

# Samplers that change logits and keep all candidates.
_EDITORS = ("logit_bias", "processors", "penalties", "dry", "grammar")
# Cuts that always keep the likeliest token: they change nothing for greedy sampling.
_KEEP_THE_LIKELIEST = ("top_n_sigma", "top_k", "tail_free", "epsilon", "eta", "top_p", "min_p")


class ChainBuilder:
    """Builds the chains of all requests to one model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def build(
        self, params: SamplingParams, prompt: Sequence[int] | Ints = (), begun: bytes = b""
    ) -> SamplerChain:
        """A new chain for a text that follows `prompt`.

        `begun`: bytes that the first tokens must begin with (see token_healing.py).
        """
        self._check_ids(params)
        first = [self._token_healing(begun)] if begun else []
        if params.thinking is not None:
            first.append(self._reasoning_budget(params.thinking))
        samplers = [self._make(name, params) for name in self._names(params)]
        active = [sampler for sampler in samplers if sampler is not None]
        return SamplerChain([*first, *active, _last(params)], seed=params.seed, prompt=prompt)

    def begun_by(self, token: int) -> bytes:
        """The bytes of a prompt's last token if longer tokens begin with them, else none."""
        text = self._index.text_of.get(token, b"")
        longer = text and any(self._index.text_of[id] != text for id in self._index.longer(text))
        return text if longer else b""

    def _token_healing(self, begun: bytes) -> Sampler:
        from ingot.sampling.samplers.token_healing import TokenHealing

        return TokenHealing(begun, self._index)

    def _reasoning_budget(self, budget: ThinkingBudget) -> Sampler:
        from ingot.sampling.samplers.reasoning_budget import ReasoningBudget

        return ReasoningBudget(budget, self._tokenizer.token_bytes)

    @once
    def _index(self) -> "TokenIndex":
        from ingot.sampling.samplers.token_healing import TokenIndex

        return TokenIndex(self._compiler.vocabulary.tokens.by_bytes)

    def _names(self, params: SamplingParams) -> list[str]:
        if params.mirostat and params.temperature:
            return [*(n for n in params.samplers if n in _EDITORS), "temperature"]
        if _is_greedy(params):
            return [name for name in params.samplers if name not in _KEEP_THE_LIKELIEST]
        return list(params.samplers)

    def _make(self, name: str, params: SamplingParams) -> Sampler | None:
        if name in _FACTORIES:
            return _FACTORIES[name](params)
        if name == "logit_bias":
            return self._logit_bias(params)
        if name == "dry":
            return self._dry(params)
        if name == "grammar":
            return self._grammar(params)
        return self._infill()

    @once
    def _compiler(self) -> "GrammarCompiler":
        from ingot.sampling.grammar.compile import GrammarCompiler

        return GrammarCompiler(self._tokenizer)

    @cached_property
    def _ends(self) -> frozenset[int]:
        return self._tokenizer.eog_ids

    def _logit_bias(self, params: SamplingParams) -> Sampler | None:
        biases = dict(params.logit_bias)
        if params.ignore_eos:
            biases.update(dict.fromkeys(self._ends, -math.inf))
        if not biases and not params.min_tokens:
            return None
        from ingot.sampling.samplers.logit_bias import LogitBias

        return LogitBias(biases, self._ends.union(params.stop_token_ids), params.min_tokens)

    def _dry(self, params: SamplingParams) -> Sampler | None:
        if params.dry_multiplier == 0.0 or params.dry_penalty_last_n == 0:
            return None
        from ingot.sampling.samplers.penalties import Dry, SequenceBreakers

        return Dry(
            params.dry_multiplier,
            params.dry_base,
            params.dry_allowed_length,
            params.dry_penalty_last_n,
            SequenceBreakers(params.dry_sequence_breakers, self._tokenizer.token_bytes),
        )

    def _grammar(self, params: SamplingParams) -> Sampler | None:
        if params.grammar is None:
            return None
        from ingot.sampling.samplers.grammar_mask import GrammarMask

        return GrammarMask(self.grammar_state(params.grammar))

    def grammar_state(self, grammar: Grammar) -> "GrammarState":
        """The state of a grammar at the start of a text; waits until it is compiled."""
        from ingot.sampling.grammar.state import GrammarState

        return GrammarState(self._compiler.wait(grammar), self._tokenizer.vocab_size)

    def compile_grammar(self, grammar: Grammar) -> "Future[CompiledGrammar]":
        """Compile a grammar without waiting for it."""
        return self._compiler.compile(grammar)

    def close(self) -> None:
        """Stop compiling grammars."""
        if "_compiler" in self.__dict__:
            self._compiler.close()

    def _infill(self) -> Sampler:
        if not self._ends:
            raise SamplingError(
                "samplers", "infill", "used with a vocabulary that has an end-of-text token"
            )
        from ingot.sampling.samplers.infill import Infill

        end = self._tokenizer.eos_id
        return Infill(
            self._ends, min(self._ends) if end is None else end, self._tokenizer.token_bytes
        )

    def _check_ids(self, params: SamplingParams) -> None:
        size = self._tokenizer.vocab_size
        for field, ids in (
            ("logit_bias", params.logit_bias),
            ("stop_token_ids", params.stop_token_ids),
        ):
            for id in ids:
                if id >= size:
                    raise SamplingError(field, id, f"a token id below {size}, the vocabulary size")


def _is_greedy(params: SamplingParams) -> bool:
    return params.temperature == 0.0 and params.dynatemp_range == 0.0


def _last(params: SamplingParams) -> Sampler:
    """The sampler that picks the token."""
    if _is_greedy(params):
        return Greedy()
    if params.mirostat:
        from ingot.sampling.samplers.mirostat import Mirostat1, Mirostat2

        kind = Mirostat1 if params.mirostat == 1 else Mirostat2
        return kind(params.mirostat_tau, params.mirostat_eta)
    if params.adaptive_target >= 0.0:
        return AdaptiveP(params.adaptive_target, params.adaptive_decay)
    return Draw()


def _processors(params: SamplingParams) -> Sampler | None:
    if not params.processors:
        return None
    from ingot.sampling.samplers.processors import Processors

    return Processors(params.processors)


def _penalties(params: SamplingParams) -> Sampler | None:
    repeat, presence = params.repeat_penalty, params.presence_penalty
    frequency, window = params.frequency_penalty, params.repeat_last_n
    if window == 0 or (repeat == 1.0 and presence == 0.0 and frequency == 0.0):
        return None
    from ingot.sampling.samplers.penalties import Penalties

    return Penalties(window, repeat, presence, frequency)


def _temperature(params: SamplingParams) -> Sampler | None:
    if params.dynatemp_range > 0.0:
        return DynamicTemperature(
            params.temperature, params.dynatemp_range, params.dynatemp_exponent
        )
    if params.temperature == 1.0 or _is_greedy(params):
        return None
    return Temperature(params.temperature)


def _xtc(params: SamplingParams) -> Sampler | None:
    if params.xtc_probability == 0.0 or params.xtc_threshold > 0.5:
        return None
    return Xtc(params.xtc_probability, params.xtc_threshold, _least(params))


def _least(params: SamplingParams) -> int:
    return max(1, params.min_keep)


# The samplers that need no tokenizer; None if the parameters switch one off.
_FACTORIES: Mapping[str, Callable[[SamplingParams], Sampler | None]] = MappingProxyType(
    {
        "processors": _processors,
        "penalties": _penalties,
        "top_n_sigma": lambda p: TopNSigma(p.top_n_sigma) if p.top_n_sigma > 0.0 else None,
        "top_k": lambda p: TopK(p.top_k) if p.top_k > 0 else None,
        "typical_p": lambda p: TypicalP(p.typical_p, _least(p)) if p.typical_p != 1.0 else None,
        "tail_free": lambda p: TailFree(p.tfs_z, _least(p)) if p.tfs_z != 1.0 else None,
        "epsilon": lambda p: Epsilon(p.epsilon_cutoff, _least(p)) if p.epsilon_cutoff else None,
        "eta": lambda p: Eta(p.eta_cutoff, _least(p)) if p.eta_cutoff else None,
        "top_p": lambda p: TopP(p.top_p, _least(p)) if p.top_p < 1.0 else None,
        "min_p": lambda p: MinP(p.min_p, _least(p)) if p.min_p > 0.0 else None,
        "xtc": _xtc,
        "temperature": _temperature,
    }
)
