"""SamplingParams: how a request samples its tokens, and when it stops.

Names and defaults are llama.cpp's if it has the parameter; `SamplingParams.from_names` also takes
other names. The values are checked, except token ids, which depend on the vocabulary
(chain_builder.py).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from ingot.errors import SamplingError, UnknownParameterError
from ingot.sampling import checks
from ingot.sampling.grammar.spec import Grammar
from ingot.sampling.order import DEFAULT_ORDER, checked_order

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Called with the tokens so far (read-only) and the logits of the vocabulary, to change in place.
Processor = Callable[["NDArray[np.int32]", "NDArray[np.float32]"], None]

DRY_BREAKERS = ("\n", ":", '"', "*")
DEFAULT_MAX_TOKENS = 128


@dataclass(frozen=True, slots=True)
class ThinkingBudget:
    """How many tokens a text may spend on reasoning (see `ingot.reply.thinking_budget`)."""

    tokens: int
    opens: bytes  # what reasoning begins with; empty if the prompt has opened it
    closes: bytes  # what ends it
    forced: tuple[int, ...]  # the tokens to write when the budget is spent


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample tokens and when to stop. An invalid value raises `SamplingError`."""

    # Temperature. 0 always takes the likeliest token. A range makes it depend on the entropy.
    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0

    # Cuts. The values that switch them off: top_k 0 or -1, probabilities 1 (min_p and cutoffs 0),
    # top_n_sigma 0 or less, adaptive_target below 0, xtc_probability 0.
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    tfs_z: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    top_n_sigma: float = -1.0
    epsilon_cutoff: float = 0.0
    eta_cutoff: float = 0.0
    min_keep: int = 0  # tokens that every probability cut keeps

    # Penalties. Windows count back from the newest token, prompt included; -1: all tokens.
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = DRY_BREAKERS

    # Other ways to draw. Mirostat (1 or 2) replaces the cuts, adaptive-p the draw.
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9

    # The order of the samplers, and the seed of the draws; None: a random seed.
    samplers: tuple[str, ...] = DEFAULT_ORDER
    seed: int | None = None

    # Constraints.
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    grammar: Grammar | None = None
    processors: tuple[Processor, ...] = ()
    thinking: ThinkingBudget | None = None

    # When to stop. max_tokens None: until the context is full.
    max_tokens: int | None = DEFAULT_MAX_TOKENS
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    time_limit: float | None = None  # seconds

    # Log-probabilities: of the sampled token and of n_probs alternatives; with
    # post_sampling_probs also after the sampler chain.
    logprobs: bool = False
    n_probs: int = 0
    post_sampling_probs: bool = False

    def __post_init__(self) -> None:
        for name in (*checks.RANGES, *checks.OPTIONAL_RANGES):
            checks.check_number(name, getattr(self, name))
        for name in ("ignore_eos", "logprobs", "post_sampling_probs"):
            checks.check_flag(name, getattr(self, name))
        for name in ("stop", "dry_sequence_breakers"):
            self._set(name, checks.texts(name, getattr(self, name)))
        self._set("stop_token_ids", checks.token_ids("stop_token_ids", self.stop_token_ids))
        self._set("logit_bias", checks.biases("logit_bias", self.logit_bias))
        self._set("samplers", checked_order(self.samplers))
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            raise SamplingError("grammar", self.grammar, "a Grammar or None")
        if self.thinking is not None and not isinstance(self.thinking, ThinkingBudget):
            raise SamplingError("thinking", self.thinking, "a ThinkingBudget or None")
        self._set("processors", _functions(self.processors))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            expected = f"at most max_tokens, which is {self.max_tokens} (None: no limit)"
            raise SamplingError("min_tokens", self.min_tokens, expected)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def from_names(
        cls, names: Mapping[str, object], *, max_tokens: int | None = DEFAULT_MAX_TOKENS
    ) -> Self:
        """Read fields under the names of this class, OpenAI's and other common ones.

        A value of None means "not given"; `max_tokens` is the default for that field. An unknown
        name raises an error that suggests the nearest known one.
        """
        given = _given(names)
        given.setdefault("max_tokens", max_tokens)
        return cls(**given)  # type: ignore[arg-type]

    def with_names(self, names: Mapping[str, object]) -> Self:
        """A copy with some fields changed; takes the same names as `from_names`."""
        return replace(self, **_given(names))  # type: ignore[arg-type]


def _given(names: Mapping[str, object]) -> dict[str, object]:
    """Values by field, from values by any accepted name."""
    given: dict[str, object] = {}
    for name, value in names.items():
        if value is None:
            continue
        if name == "response_format":
            if (grammar := _response_grammar(value)) is not None:  # None: plain text
                _put(given, "grammar", name, grammar)
        elif name == "top_logprobs":
            _put(given, "n_probs", name, value)
        elif name == "logprobs" and not isinstance(value, bool):
            given["logprobs"] = True  # the older completion API: a number of alternatives
            _put(given, "n_probs", name, value)
        elif name == "logit_bias" and isinstance(value, Mapping):
            given["logit_bias"] = {_as_id(id): bias for id, bias in value.items()}
        elif ALIASES.get(name, name) == "max_tokens" and value == -1:  # llama.cpp's "no limit"
            _put(given, "max_tokens", name, None)
        elif name == "seed" and value == -1:  # llama.cpp's "any"
            continue
        elif name == "t_max_predict_ms":
            _put(given, "time_limit", name, _seconds(value))
        elif (target := ALIASES.get(name, name)) in _FIELDS:
            _put(given, target, name, value)
        else:
            raise UnknownParameterError(name, _FIELDS | ALIASES.keys() | _CONVERTED)
    return given


_FIELDS = frozenset(entry.name for entry in fields(SamplingParams))
_CONVERTED = frozenset({"response_format", "top_logprobs", "t_max_predict_ms"})
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "max_completion_tokens": "max_tokens",  # OpenAI
        "max_new_tokens": "max_tokens",  # transformers
        "n_predict": "max_tokens",  # llama.cpp's server
        "repetition_penalty": "repeat_penalty",  # transformers, vLLM
        "bias": "logit_bias",
        "typ_p": "typical_p",
        "temp": "temperature",
        "logits_processors": "processors",  # vLLM
    }
)


def _put(given: dict[str, object], target: str, name: str, value: object) -> None:
    if target in given and given[target] != value:
        raise SamplingError(name, value, f"equal to {target}, which was also given")
    given[target] = value


def _as_id(key: object) -> object:
    """A token id; JSON objects have them as strings."""
    return int(key) if isinstance(key, str) and key.isdecimal() else key


def _seconds(milliseconds: object) -> object:
    return milliseconds / 1e3 if isinstance(milliseconds, (int, float)) else milliseconds


def _functions(value: object) -> tuple[Processor, ...]:
    listed = (value,) if callable(value) else value
    if not isinstance(listed, Sequence) or not all(callable(entry) for entry in listed):
        raise SamplingError("processors", value, "functions of (token_ids, logits)")
    return tuple(listed)


def _response_grammar(value: object) -> Grammar | None:
    expected = 'of type "text", "json_object", or "json_schema" with a schema'
    if not isinstance(value, Mapping):
        raise SamplingError("response_format", value, expected)
    kind, inner = value.get("type"), value.get("json_schema", value)
    schema = inner.get("schema") if isinstance(inner, Mapping) else None
    if kind == "text":
        return None
    if kind == "json_object" and schema is None:
        return Grammar.json_schema({"type": "object"})
    if kind == "json_object" and isinstance(schema, Mapping):
        return Grammar.json_schema(json.dumps({"type": "object", **schema}))
    if kind in ("json_object", "json_schema") and isinstance(schema, (Mapping, bool)):
        return Grammar.json_schema(json.dumps(schema))
    raise SamplingError("response_format", value, expected)
