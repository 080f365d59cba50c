"""The names under which a request takes its sampling parameters, with their types.

These are for editors and type checkers: methods that pass parameters on declare
`**fields: Unpack[SamplingFields]`. `SamplingParams` holds the defaults and checks the values;
`tests/unit/test_front_door.py` compares both lists. None means "not given".
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from ingot.sampling.grammar.spec import Grammar
from ingot.sampling.params import Processor, ThinkingBudget


class SamplingFields(TypedDict, total=False):
    """Fields of `SamplingParams`, and the names that other libraries give them."""

    temperature: float | None
    dynatemp_range: float | None
    dynatemp_exponent: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    tfs_z: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    top_n_sigma: float | None
    epsilon_cutoff: float | None
    eta_cutoff: float | None
    min_keep: int | None
    repeat_last_n: int | None
    repeat_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breakers: Sequence[str] | None
    mirostat: int | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    adaptive_target: float | None
    adaptive_decay: float | None
    samplers: Sequence[str] | None
    seed: int | None
    logit_bias: Mapping[int, float] | None
    grammar: Grammar | None
    processors: Processor | Sequence[Processor] | None
    thinking: ThinkingBudget | None
    max_tokens: int | None
    min_tokens: int | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    ignore_eos: bool | None
    time_limit: float | None
    logprobs: bool | int | None
    n_probs: int | None
    post_sampling_probs: bool | None

    # OpenAI's, transformers', vLLM's and llama.cpp's names for some of them.
    max_completion_tokens: int | None
    max_new_tokens: int | None
    n_predict: int | None
    repetition_penalty: float | None
    bias: Mapping[int, float] | None
    typ_p: float | None
    temp: float | None
    logits_processors: Processor | Sequence[Processor] | None
    response_format: Mapping[str, object] | None
    top_logprobs: int | None
    t_max_predict_ms: float | None
