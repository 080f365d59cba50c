"""From parameters to a chain.

Comes in: `SamplingParams` and a tokenizer. Goes out: a `SamplerChain` with the samplers that
have something to do, in the order the parameters say. What depends on the vocabulary is
checked here: token ids, and the grammar. Samplers that most requests do without are imported
when one asks for them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from ingot.arrays import Ints
from ingot.errors import SamplingError
from ingot.sampling.chain import SamplerChain
from ingot.sampling.grammar.spec import Grammar
from ingot.sampling.params import SamplingParams
from ingot.sampling.sampler import Sampler
from ingot.sampling.samplers.draw import Draw
from ingot.sampling.samplers.greedy import Greedy
from ingot.sampling.samplers.min_p import MinP
from ingot.sampling.samplers.temperature import Temperature
from ingot.sampling.samplers.top_k import TopK
from ingot.sampling.samplers.top_p import TopP
from ingot.sampling.thinking import ThinkingBudget
from ingot.tokenizer import Tokenizer

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ingot.sampling.grammar.compile import GrammarCompiler
    from ingot.sampling.grammar.lane import Compiled
    from ingot.sampling.grammar.state import GrammarState
    from ingot.sampling.samplers.healing import TokenIndex

# Samplers that change logits and leave all candidates in.
_EDITORS = ("logit_bias", "processors", "penalties", "dry", "grammar")
# Cuts that never take the likeliest token away: they change nothing for greedy.
_KEEP_THE_LIKELIEST = ("top_n_sigma", "top_k", "tail_free", "epsilon", "eta", "top_p", "min_p")


class ChainBuilder:
    """Builds the chains of all requests to one model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def build(
        self, params: SamplingParams, prompt: Sequence[int] | Ints = (), begun: bytes = b""
    ) -> SamplerChain:
        """Make a new chain.

        `prompt` is the text before the first token it chooses; `begun` are bytes that the first
        tokens must begin with (see healing.py).
        """
        self._check_ids(params)
        first = [self._healing(begun)] if begun else []
        if params.thinking is not None:
            first.append(self._thinking(params.thinking))
        samplers = [self._make(name, params) for name in self._names(params)]
        active = [sampler for sampler in samplers if sampler is not None]
        return SamplerChain([*first, *active, _last(params)], seed=params.seed, prompt=prompt)

    def begun_by(self, token: int) -> bytes:
        """The bytes of a prompt's last token, if other tokens begin with them, too."""
        text = self._index.text_of.get(token, b"")
        longer = text and any(self._index.text_of[id] != text for id in self._index.longer(text))
        return text if longer else b""

    def _healing(self, begun: bytes) -> Sampler:
        from ingot.sampling.samplers.healing import Healing

        return Healing(begun, self._index)

    def _thinking(self, budget: ThinkingBudget) -> Sampler:
        from ingot.sampling.samplers.thinking import Thinking

        return Thinking(budget, self._tokenizer.token_bytes)

    @cached_property
    def _index(self) -> "TokenIndex":
        from ingot.sampling.samplers.healing import TokenIndex

        return TokenIndex(self._compiler.vocabulary.tokens.by_bytes)

    def _names(self, params: SamplingParams) -> list[str]:
        if params.mirostat and params.temperature:
            return [*(n for n in params.samplers if n in _EDITORS), "temperature"]
        if _is_greedy(params):
            return [name for name in params.samplers if name not in _KEEP_THE_LIKELIEST]
        return list(params.samplers)

    def _make(self, name: str, params: SamplingParams) -> Sampler | None:
        if name in _MAKERS:
            return _MAKERS[name](params)
        if name == "logit_bias":
            return self._logit_bias(params)
        if name == "dry":
            return self._dry(params)
        if name == "grammar":
            return self._grammar(params)
        return self._infill()

    @cached_property
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
        from ingot.sampling.samplers.breakers import Breakers
        from ingot.sampling.samplers.dry import Dry

        return Dry(
            params.dry_multiplier,
            params.dry_base,
            params.dry_allowed_length,
            params.dry_penalty_last_n,
            Breakers(params.dry_sequence_breakers, self._tokenizer.token_bytes),
        )

    def _grammar(self, params: SamplingParams) -> Sampler | None:
        if params.grammar is None:
            return None
        from ingot.sampling.samplers.grammar_mask import GrammarMask

        return GrammarMask(self.grammar_state(params.grammar))

    def grammar_state(self, grammar: Grammar) -> "GrammarState":
        """A grammar at the start of a text."""
        from ingot.sampling.grammar.state import GrammarState

        return GrammarState(self._compiler.wait(grammar), self._tokenizer.vocab_size)

    def compile_grammar(self, grammar: Grammar) -> "Future[Compiled]":
        """A grammar to come, for those who cannot wait for it in their thread."""
        return self._compiler.compile(grammar)

    def close(self) -> None:
        """Compile no more grammars."""
        if "_compiler" in self.__dict__:
            self._compiler.close()

    def _infill(self) -> Sampler:
        if not self._ends:
            raise SamplingError("samplers", "infill", "for a vocabulary with an end-of-text token")
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
                    raise SamplingError(
                        field, id, f"a token id below {size}, the vocabulary's size"
                    )


def _is_greedy(params: SamplingParams) -> bool:
    return params.temperature == 0.0 and params.dynatemp_range == 0.0


def _last(params: SamplingParams) -> Sampler:
    if _is_greedy(params):
        return Greedy()
    if params.mirostat:
        from ingot.sampling.samplers.mirostat import Mirostat1, Mirostat2

        kind = Mirostat1 if params.mirostat == 1 else Mirostat2
        return kind(params.mirostat_tau, params.mirostat_eta)
    if params.adaptive_target >= 0.0:
        from ingot.sampling.samplers.adaptive_p import AdaptiveP

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
        from ingot.sampling.samplers.dynamic_temperature import DynamicTemperature

        return DynamicTemperature(
            params.temperature, params.dynatemp_range, params.dynatemp_exponent
        )
    if params.temperature == 1.0 or _is_greedy(params):
        return None
    return Temperature(params.temperature)


def _top_k(params: SamplingParams) -> Sampler | None:
    return TopK(params.top_k) if params.top_k > 0 else None


def _top_p(params: SamplingParams) -> Sampler | None:
    return TopP(params.top_p, _least(params)) if params.top_p < 1.0 else None


def _min_p(params: SamplingParams) -> Sampler | None:
    return MinP(params.min_p, _least(params)) if params.min_p > 0.0 else None


def _typical_p(params: SamplingParams) -> Sampler | None:
    if params.typical_p == 1.0:
        return None
    from ingot.sampling.samplers.typical_p import TypicalP

    return TypicalP(params.typical_p, _least(params))


def _tail_free(params: SamplingParams) -> Sampler | None:
    if params.tfs_z == 1.0:
        return None
    from ingot.sampling.samplers.tail_free import TailFree

    return TailFree(params.tfs_z, _least(params))


def _epsilon(params: SamplingParams) -> Sampler | None:
    if params.epsilon_cutoff == 0.0:
        return None
    from ingot.sampling.samplers.epsilon import Epsilon

    return Epsilon(params.epsilon_cutoff, _least(params))


def _eta(params: SamplingParams) -> Sampler | None:
    if params.eta_cutoff == 0.0:
        return None
    from ingot.sampling.samplers.eta import Eta

    return Eta(params.eta_cutoff, _least(params))


def _top_n_sigma(params: SamplingParams) -> Sampler | None:
    if params.top_n_sigma <= 0.0:
        return None
    from ingot.sampling.samplers.top_n_sigma import TopNSigma

    return TopNSigma(params.top_n_sigma)


def _xtc(params: SamplingParams) -> Sampler | None:
    if params.xtc_probability == 0.0 or params.xtc_threshold > 0.5:
        return None
    from ingot.sampling.samplers.xtc import Xtc

    return Xtc(params.xtc_probability, params.xtc_threshold, _least(params))


def _least(params: SamplingParams) -> int:
    return max(1, params.min_keep)


# Those that need no tokenizer. Each gives None where its parameters switch it off.
_MAKERS: Mapping[str, Callable[[SamplingParams], Sampler | None]] = MappingProxyType(
    {
        "processors": _processors,
        "penalties": _penalties,
        "top_n_sigma": _top_n_sigma,
        "top_k": _top_k,
        "typical_p": _typical_p,
        "tail_free": _tail_free,
        "epsilon": _epsilon,
        "eta": _eta,
        "top_p": _top_p,
        "min_p": _min_p,
        "xtc": _xtc,
        "temperature": _temperature,
    }
)
