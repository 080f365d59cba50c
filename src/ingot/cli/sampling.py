"""The options of commands that write text: how tokens are chosen, and when to stop.

Their names are llama.cpp's. What is not given is left to the defaults of `SamplingParams`.
"""

from pathlib import Path
from typing import Annotated

import typer

from ingot.errors import ConfigError
from ingot.sampling import Grammar, SamplingParams

_PANEL = "Choosing tokens"


def _option(*names: str, text: str) -> typer.models.OptionInfo:
    made: typer.models.OptionInfo = typer.Option(*names, help=text, rich_help_panel=_PANEL)
    return made


Temperature = Annotated[
    float | None, _option("--temperature", "--temp", text="0 takes the likeliest token. [0.8]")
]
TopK = Annotated[int | None, _option("--top-k", text="The k likeliest tokens; 0: all. [40]")]
TopP = Annotated[float | None, _option("--top-p", text="Tokens that reach p together. [0.95]")]
MinP = Annotated[
    float | None, _option("--min-p", text="Tokens of a share of the likeliest. [0.05]")
]
TypicalP = Annotated[
    float | None, _option("--typical", text="Tokens about as surprising as expected. [1: off]")
]
TopNSigma = Annotated[
    float | None, _option("--top-nsigma", text="Logits within n deviations. [-1: off]")
]
RepeatPenalty = Annotated[
    float | None, _option("--repeat-penalty", text="For tokens that came before. [1: off]")
]
RepeatLastN = Annotated[
    int | None, _option("--repeat-last-n", text="Tokens that penalties look at; -1: all. [64]")
]
PresencePenalty = Annotated[float | None, _option("--presence-penalty", text="[0: off]")]
FrequencyPenalty = Annotated[float | None, _option("--frequency-penalty", text="[0: off]")]
DryMultiplier = Annotated[
    float | None, _option("--dry-multiplier", text="Penalty for repeating on. [0: off]")
]
XtcProbability = Annotated[
    float | None, _option("--xtc-probability", text="Chance to leave out likely tokens. [0]")
]
Mirostat = Annotated[
    int | None, _option("--mirostat", text="Version 1 or 2, in place of the cuts. [0: off]")
]
Samplers = Annotated[
    str | None, _option("--samplers", text="Their order, names separated by semicolons.")
]
Seed = Annotated[int | None, _option("-s", "--seed", text="Makes draws repeatable.")]
Stop = Annotated[
    list[str] | None, _option("--stop", text="A text that ends the answer; may be repeated.")
]
IgnoreEos = Annotated[bool, _option("--ignore-eos", text="Go on where the model would end.")]
GrammarFile = Annotated[
    Path | None, _option("--grammar-file", text="A grammar (GBNF, or Lark in a .lark file).")
]
JsonSchema = Annotated[
    str | None, _option("-j", "--json-schema", text="A JSON schema the answer must follow.")
]


def make_params(
    *, samplers: str | None, grammar_file: Path | None, json_schema: str | None, **fields: object
) -> SamplingParams:
    """The parameters that the options say."""
    named = {name: value for name, value in fields.items() if value is not None}
    if samplers is not None:
        named["samplers"] = [name.strip() for name in samplers.split(";") if name.strip()]
    if grammar_file is not None and json_schema is not None:
        raise ConfigError("--grammar-file and --json-schema do not go together")
    if grammar_file is not None:
        text = grammar_file.read_text(encoding="utf-8")
        lark = grammar_file.suffix == ".lark"
        named["grammar"] = Grammar.lark(text) if lark else Grammar.gbnf(text)
    if json_schema is not None:
        named["grammar"] = Grammar.json_schema(json_schema)
    return SamplingParams.from_names(named)
