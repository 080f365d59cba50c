"""SamplingParams: defaults, every field's check, other names."""

import math
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

from ingot.errors import GrammarError, IngotError, SamplingError, UnknownParameterError
from ingot.sampling import Grammar, SamplingParams
from ingot.sampling.checks import OPTIONAL_RANGES, RANGES
from ingot.sampling.order import DEFAULT_ORDER, NAMES


def test_defaults_are_those_of_llama_cpp() -> None:
    params = SamplingParams()
    expected = {
        "temperature": 0.8, "dynatemp_range": 0.0, "dynatemp_exponent": 1.0, "top_k": 40,
        "top_p": 0.95, "min_p": 0.05, "typical_p": 1.0, "xtc_probability": 0.0,
        "xtc_threshold": 0.1, "top_n_sigma": -1.0, "repeat_last_n": 64, "repeat_penalty": 1.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "dry_multiplier": 0.0,
        "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1, "mirostat": 0,
        "mirostat_tau": 5.0, "mirostat_eta": 0.1, "min_keep": 0, "n_probs": 0,
        "dry_sequence_breakers": ("\n", ":", '"', "*"), "adaptive_target": -1.0,
        "adaptive_decay": 0.9,
    }  # fmt: skip
    assert {name: getattr(params, name) for name in expected} == expected


def test_every_number_has_a_range() -> None:
    numbers = {
        entry.name
        for entry in fields(SamplingParams)
        if isinstance(entry.default, (int, float)) and not isinstance(entry.default, bool)
    }
    assert numbers - OPTIONAL_RANGES.keys() == RANGES.keys()
    assert OPTIONAL_RANGES.keys() == {"seed", "max_tokens", "time_limit"}


@pytest.mark.parametrize("field", [*RANGES, *OPTIONAL_RANGES])
def test_numbers_outside_their_range_are_refused(field: str) -> None:
    limits = {**RANGES, **OPTIONAL_RANGES}[field]
    below = limits.low if limits.low_open else limits.low - 1
    above = [limits.high + 1] if math.isfinite(limits.high) else []
    fraction = [1.5] if limits.whole else []
    for wrong in [below, *above, *fraction, math.nan, math.inf, "1", True, [1]]:
        with pytest.raises(SamplingError) as refusal:
            SamplingParams(**{field: wrong})
        assert refusal.value.field == field
        assert str(refusal.value).startswith(f"{field} is {wrong!r}; it must be a ")
    if field in RANGES:
        with pytest.raises(SamplingError, match=field):
            SamplingParams(**{field: None})
    else:
        assert getattr(SamplingParams(**{field: None}), field) is None


@pytest.mark.parametrize("field", [*RANGES, *OPTIONAL_RANGES])
def test_the_ends_of_a_range_are_allowed(field: str) -> None:
    limits = {**RANGES, **OPTIONAL_RANGES}[field]
    if not limits.low_open and field != "min_tokens":
        assert getattr(SamplingParams(**{field: int(limits.low)}), field) == limits.low
    if math.isfinite(limits.high):
        given = {"max_tokens": None, field: limits.high}
        assert getattr(SamplingParams(**given), field) == limits.high


def test_messages_say_the_range() -> None:
    for field, wrong, words in (
        ("top_p", 1.5, "top_p is 1.5; it must be a number from 0 to 1"),
        ("top_k", -2, "top_k is -2; it must be a whole number of at least -1"),
        ("typical_p", 0, "typical_p is 0; it must be a number greater than 0 and at most 1"),
        ("seed", -5, f"seed is -5; it must be a whole number from 0 to {2**64 - 1} or None"),
        ("repeat_penalty", 0, "repeat_penalty is 0; it must be a number greater than 0"),
    ):
        with pytest.raises(SamplingError) as refusal:
            SamplingParams(**{field: wrong})
        assert str(refusal.value) == words


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("stop", [""]), ("stop", 3), ("stop", ["a", 3]), ("dry_sequence_breakers", [b"x"]),
        ("stop_token_ids", [-1]), ("stop_token_ids", [1.0]), ("stop_token_ids", 7),
        ("logit_bias", [1]), ("logit_bias", {1: math.nan}), ("logit_bias", {1: math.inf}),
        ("logit_bias", {1: 10**40}), ("logit_bias", {1: -1e308}),
        ("logit_bias", {"a": 1.0}), ("logit_bias", {1: True}), ("logit_bias", {-1: 1.0}),
        ("ignore_eos", 1), ("logprobs", "yes"), ("post_sampling_probs", None),
        ("samplers", "top_k"), ("samplers", ["top_k", "top_k"]), ("samplers", ["best"]),
        ("samplers", 3), ("grammar", "start: /a/"), ("processors", [3]), ("processors", 3),
    ],
)  # fmt: skip
def test_other_wrong_values_are_refused(field: str, wrong: object) -> None:
    with pytest.raises(SamplingError, match=field) as refusal:
        SamplingParams(**{field: wrong})
    assert isinstance(refusal.value, (IngotError, ValueError))
    assert refusal.value.value == wrong


def test_min_tokens_cannot_be_more_than_max_tokens() -> None:
    with pytest.raises(SamplingError, match="min_tokens is 5; it must be at most max_tokens"):
        SamplingParams(min_tokens=5, max_tokens=4)


def test_values_are_brought_into_one_form() -> None:
    params = SamplingParams(
        stop="END",
        stop_token_ids=[1, 2],
        logit_bias={3: 1, 4: False, 5: -math.inf},
        samplers=["top-k", "typ_p", "temp"],
        processors=np.copyto,
    )
    assert params.stop == ("END",)
    assert params.stop_token_ids == (1, 2)
    assert dict(params.logit_bias) == {3: 1.0, 4: -math.inf, 5: -math.inf}
    assert params.samplers == (
        "logit_bias", "processors", "grammar", "top_k", "typical_p", "temperature",
    )  # fmt: skip
    assert params.processors == (np.copyto,)
    with pytest.raises(FrozenInstanceError):
        params.top_k = 3


def test_bans_keep_the_place_a_request_gives_them() -> None:
    order = ("top_k", "grammar", "logit_bias", "processors")
    assert SamplingParams(samplers=order).samplers == order
    assert SamplingParams(samplers=DEFAULT_ORDER).samplers == DEFAULT_ORDER
    assert set(NAMES) == {*DEFAULT_ORDER, "infill"}


def test_openai_names() -> None:
    params = SamplingParams.from_names(
        {
            "max_completion_tokens": 7,
            "temperature": 0.5,
            "top_p": None,
            "stop": ["a", "b"],
            "logit_bias": {"50256": -100},
            "logprobs": True,
            "top_logprobs": 3,
            "seed": 1,
            "frequency_penalty": 0.25,
            "response_format": {"type": "json_object"},
        }
    )
    assert params == SamplingParams(
        max_tokens=7,
        temperature=0.5,
        stop=("a", "b"),
        logit_bias={50256: -100.0},
        logprobs=True,
        n_probs=3,
        seed=1,
        frequency_penalty=0.25,
        grammar=Grammar.json_schema({"type": "object"}),
    )


def test_other_common_names() -> None:
    params = SamplingParams.from_names(
        {"n_predict": 9, "repetition_penalty": 1.5, "seed": -1, "t_max_predict_ms": 250}
    )
    assert params == SamplingParams(max_tokens=9, repeat_penalty=1.5, time_limit=0.25)
    assert SamplingParams.from_names({"n_predict": -1}).max_tokens is None
    older = SamplingParams.from_names({"logprobs": 5})
    assert (older.logprobs, older.n_probs) == (True, 5)


def test_schemas_in_a_response_format() -> None:
    schema = {"type": "integer"}
    for given in (
        {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        {"type": "json_object", "schema": schema},
    ):
        params = SamplingParams.from_names({"response_format": given})
        assert params.grammar == Grammar.json_schema(schema)
    assert SamplingParams.from_names({"response_format": {"type": "text"}}).grammar is None
    for wrong in ("json", {"type": "json_schema"}, {"type": "yaml"}, {"json_schema": 1}):
        with pytest.raises(SamplingError, match="response_format"):
            SamplingParams.from_names({"response_format": wrong})


def test_names_that_are_unknown_or_contradict_are_refused() -> None:
    with pytest.raises(UnknownParameterError, match=r"'best_of'; use .*top_k"):
        SamplingParams.from_names({"best_of": 3})
    with pytest.raises(SamplingError, match="max_tokens"):
        SamplingParams.from_names({"max_tokens": 3, "max_completion_tokens": 4})
    with pytest.raises(SamplingError, match="temperature is 'hot'"):
        SamplingParams.from_names({"temperature": "hot"})


def test_grammars_are_checked_for_what_they_are() -> None:
    with pytest.raises(GrammarError, match="not valid JSON"):
        Grammar.json_schema("{")
    for wrong in ([], ["a", ""], ["a", 3]):
        with pytest.raises(GrammarError, match="choices"):
            Grammar.choices(wrong)
    with pytest.raises(GrammarError, match="marker"):
        Grammar.regex("a").after()
    lazy = Grammar.regex("a").after("<call>")
    assert lazy.markers == ("<call>",)
    assert lazy.source == "a"
