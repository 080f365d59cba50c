"""Sampling options of commands that generate text, with llama.cpp's names.

An option that is not given keeps what the model recommends, else the default of `SamplingParams`.
"""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from ingot.cli.shared.output import read_text
from ingot.errors import ConfigError
from ingot.sampling import Grammar, SamplingParams

_PANEL = "Sampling"
_BIAS = re.compile(r"([0-9]{1,9})([+-](?:inf|[0-9]{1,9}(?:\.[0-9]{0,9})?))")


def _option(*names: str, text: str) -> typer.models.OptionInfo:
    made: typer.models.OptionInfo = typer.Option(*names, help=text, rich_help_panel=_PANEL)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingFlags:
    """The options, declared for typer."""

    temperature: Annotated[
        float | None,
        _option("--temperature", "--temp", text="Sampling temperature; 0 is greedy. [0.8]"),
    ] = None
    dynatemp_range: Annotated[
        float | None,
        _option(
            "--dynatemp-range",
            text="Let the temperature vary by this much with the entropy. [0: off]",
        ),
    ] = None
    dynatemp_exponent: Annotated[
        float | None,
        _option("--dynatemp-exp", text="Exponent of the dynamic temperature. [1]"),
    ] = None
    top_k: Annotated[
        int | None, _option("--top-k", text="Keep the k most likely tokens; 0 or -1: all. [40]")
    ] = None
    top_p: Annotated[
        float | None,
        _option("--top-p", text="Keep the top tokens that add up to p. [0.95]"),
    ] = None
    min_p: Annotated[
        float | None,
        _option("--min-p", text="Keep tokens with at least p times the top probability. [0.05]"),
    ] = None
    typical_p: Annotated[
        float | None, _option("--typical", text="Locally typical sampling. [1: off]")
    ] = None
    top_n_sigma: Annotated[
        float | None,
        _option(
            "--top-nsigma", text="Keep logits within n standard deviations of the top. [-1: off]"
        ),
    ] = None
    tfs_z: Annotated[
        float | None,
        _option("--tfs", text="Tail-free sampling. [1: off]"),
    ] = None
    epsilon_cutoff: Annotated[
        float | None,
        _option("--epsilon-cutoff", text="Remove tokens below this probability. [0: off]"),
    ] = None
    eta_cutoff: Annotated[
        float | None,
        _option("--eta-cutoff", text="Remove unlikely tokens by the entropy. [0: off]"),
    ] = None
    min_keep: Annotated[
        int | None,
        _option("--min-keep", text="Tokens that every cut by probability keeps. [0]"),
    ] = None
    repeat_penalty: Annotated[
        float | None,
        _option("--repeat-penalty", text="Penalize tokens that occurred before. [1: off]"),
    ] = None
    repeat_last_n: Annotated[
        int | None,
        _option("--repeat-last-n", text="How many recent tokens penalties consider; -1: all. [64]"),
    ] = None
    presence_penalty: Annotated[
        float | None,
        _option("--presence-penalty", text="Penalize tokens that occurred at all. [0: off]"),
    ] = None
    frequency_penalty: Annotated[
        float | None,
        _option("--frequency-penalty", text="Penalize tokens by how often they occurred. [0: off]"),
    ] = None
    dry_multiplier: Annotated[
        float | None,
        _option(
            "--dry-multiplier", text="Strength of the DRY penalty for repeated sequences. [0: off]"
        ),
    ] = None
    dry_base: Annotated[
        float | None,
        _option("--dry-base", text="How fast the DRY penalty grows. [1.75]"),
    ] = None
    dry_allowed_length: Annotated[
        int | None,
        _option("--dry-allowed-length", text="Longest repetition that DRY allows. [2]"),
    ] = None
    dry_penalty_last_n: Annotated[
        int | None,
        _option("--dry-penalty-last-n", text="How many recent tokens DRY considers; -1: all. [-1]"),
    ] = None
    dry_sequence_breakers: Annotated[
        list[str] | None,
        _option(
            "--dry-sequence-breaker", text="A text that ends a repetition for DRY; may be repeated."
        ),
    ] = None
    xtc_probability: Annotated[
        float | None,
        _option("--xtc-probability", text="Probability that XTC removes the top tokens. [0: off]"),
    ] = None
    xtc_threshold: Annotated[
        float | None,
        _option("--xtc-threshold", text="Probability from which XTC removes tokens. [0.1]"),
    ] = None
    mirostat: Annotated[
        int | None,
        _option(
            "--mirostat", text="Mirostat version 1 or 2; replaces top-k, top-p and others. [0: off]"
        ),
    ] = None
    mirostat_tau: Annotated[
        float | None,
        _option("--mirostat-ent", text="Target entropy of Mirostat, tau. [5]"),
    ] = None
    mirostat_eta: Annotated[
        float | None,
        _option("--mirostat-lr", text="Learning rate of Mirostat, eta. [0.1]"),
    ] = None
    adaptive_target: Annotated[
        float | None,
        _option("--adaptive-target", text="Target probability of adaptive-p. [-1: off]"),
    ] = None
    adaptive_decay: Annotated[
        float | None,
        _option("--adaptive-decay", text="How slowly adaptive-p adapts. [0.9]"),
    ] = None
    logit_bias: Annotated[
        list[str] | None,
        _option(
            "-l",
            "--logit-bias",
            text="Add to the logit of a token, by its id: 15043+1.5; 15043-inf bans it. "
            "May be repeated.",
        ),
    ] = None
    samplers: Annotated[
        str | None,
        _option("--samplers", text="The sampler chain in order, separated by semicolons."),
    ] = None
    seed: Annotated[
        int | None, _option("-s", "--seed", text="Random seed, for repeatable results. [random]")
    ] = None
    stop: Annotated[
        list[str] | None, _option("--stop", text="A stop sequence; may be repeated.")
    ] = None
    ignore_eos: Annotated[
        bool, _option("--ignore-eos", text="Continue after the end-of-sequence token.")
    ] = False
    grammar_file: Annotated[
        Path | None,
        _option(
            "--grammar-file",
            text="A grammar the answer must follow (GBNF, or Lark in a .lark file).",
        ),
    ] = None
    json_schema: Annotated[
        str | None, _option("-j", "--json-schema", text="A JSON schema the answer must follow.")
    ] = None

    def __post_init__(self) -> None:
        self.params(SamplingParams())  # an invalid value is reported before a model is opened

    def params(self, base: SamplingParams) -> SamplingParams:
        """`base` with the options that are given."""
        return base.with_names(self.names())

    def names(self) -> dict[str, object]:
        """The options that are given, as fields of `SamplingParams`."""
        named = {name: value for name, value in asdict(self).items() if value is not None}
        for special in ("samplers", "grammar_file", "json_schema", "logit_bias"):
            named.pop(special, None)
        if self.logit_bias:
            named["logit_bias"] = dict(map(_bias, self.logit_bias))
        if self.samplers is not None:
            named["samplers"] = [name.strip() for name in self.samplers.split(";") if name.strip()]
        if self.grammar_file is not None and self.json_schema is not None:
            raise ConfigError("use either --grammar-file or --json-schema, not both")
        if self.grammar_file is not None:
            text = read_text(self.grammar_file)
            lark = self.grammar_file.suffix == ".lark"
            named["grammar"] = Grammar.lark(text) if lark else Grammar.gbnf(text)
        if self.json_schema is not None:
            named["grammar"] = Grammar.json_schema(self.json_schema)
        if not self.ignore_eos:
            del named["ignore_eos"]
        return named


def _bias(given: str) -> tuple[int, float]:
    """The token and the bias of a `--logit-bias`."""
    found = _BIAS.fullmatch(given)
    if found is None:
        raise ConfigError(
            f"--logit-bias is {given!r}; it must be a token id, + or -, and a number: 15043+1.5"
        )
    return int(found[1]), float(found[2])
