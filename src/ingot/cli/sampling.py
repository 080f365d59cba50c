"""The options of commands that write text: how tokens are chosen, and when to stop.

Their names are llama.cpp's. What is not given is left to the defaults of `SamplingParams`.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from ingot.cli.text import read_text
from ingot.errors import ConfigError
from ingot.sampling import Grammar, SamplingParams

_PANEL = "Choosing tokens"


def _option(*names: str, text: str) -> typer.models.OptionInfo:
    made: typer.models.OptionInfo = typer.Option(*names, help=text, rich_help_panel=_PANEL)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flags:
    """The options, each as typer wants it."""

    temperature: Annotated[
        float | None, _option("--temperature", "--temp", text="0 takes the likeliest token. [0.8]")
    ] = None
    top_k: Annotated[
        int | None, _option("--top-k", text="The k likeliest tokens; 0 or -1: all. [40]")
    ] = None
    top_p: Annotated[
        float | None, _option("--top-p", text="Tokens that reach p together. [0.95]")
    ] = None
    min_p: Annotated[
        float | None, _option("--min-p", text="Tokens of a share of the likeliest. [0.05]")
    ] = None
    typical_p: Annotated[
        float | None, _option("--typical", text="Tokens about as surprising as expected. [1: off]")
    ] = None
    top_n_sigma: Annotated[
        float | None, _option("--top-nsigma", text="Logits within n deviations. [-1: off]")
    ] = None
    repeat_penalty: Annotated[
        float | None, _option("--repeat-penalty", text="For tokens that came before. [1: off]")
    ] = None
    repeat_last_n: Annotated[
        int | None, _option("--repeat-last-n", text="Tokens that penalties look at; -1: all. [64]")
    ] = None
    presence_penalty: Annotated[float | None, _option("--presence-penalty", text="[0: off]")] = None
    frequency_penalty: Annotated[float | None, _option("--frequency-penalty", text="[0: off]")] = (
        None
    )
    dry_multiplier: Annotated[
        float | None, _option("--dry-multiplier", text="Penalty for repeating on. [0: off]")
    ] = None
    xtc_probability: Annotated[
        float | None, _option("--xtc-probability", text="Chance to leave out likely tokens. [0]")
    ] = None
    mirostat: Annotated[
        int | None, _option("--mirostat", text="Version 1 or 2, in place of the cuts. [0: off]")
    ] = None
    samplers: Annotated[
        str | None, _option("--samplers", text="Their order, names separated by semicolons.")
    ] = None
    seed: Annotated[
        int | None, _option("-s", "--seed", text="Makes draws repeatable. [random]")
    ] = None
    stop: Annotated[
        list[str] | None, _option("--stop", text="A text that ends the answer; may be repeated.")
    ] = None
    ignore_eos: Annotated[
        bool, _option("--ignore-eos", text="Go on where the model would end.")
    ] = False
    grammar_file: Annotated[
        Path | None, _option("--grammar-file", text="A grammar (GBNF, or Lark in a .lark file).")
    ] = None
    json_schema: Annotated[
        str | None, _option("-j", "--json-schema", text="A JSON schema the answer must follow.")
    ] = None

    def params(self) -> SamplingParams:
        """The parameters that they say."""
        named = {name: value for name, value in asdict(self).items() if value is not None}
        for special in ("samplers", "grammar_file", "json_schema"):
            named.pop(special, None)
        if self.samplers is not None:
            named["samplers"] = [name.strip() for name in self.samplers.split(";") if name.strip()]
        if self.grammar_file is not None and self.json_schema is not None:
            raise ConfigError("--grammar-file and --json-schema do not go together")
        if self.grammar_file is not None:
            text = read_text(self.grammar_file)
            lark = self.grammar_file.suffix == ".lark"
            named["grammar"] = Grammar.lark(text) if lark else Grammar.gbnf(text)
        if self.json_schema is not None:
            named["grammar"] = Grammar.json_schema(self.json_schema)
        return SamplingParams.from_names(named)


def takes_sampling_flags(command: Callable[..., None]) -> Callable[..., None]:
    """A command with all the options where the given one takes `sampling`, their parameters."""
    flags = signature(_Flags).parameters
    options: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        options += flags.values() if parameter.name == "sampling" else [parameter]

    @wraps(command)
    def with_flags(**given: Any) -> None:
        said = _Flags(**{name: given.pop(name) for name in flags})
        command(sampling=said.params(), **given)

    with_flags.__dict__["__signature__"] = signature(command).replace(parameters=options)
    return with_flags
