"""Time sampling: each sampler and the default chain, on large vocabularies, beside llama.cpp.

    python benchmarks/bench_sampling.py [--vocabulary 151936 ...] [--repeats 200] [--json]

One request at a time, and eight at once. Each figure is the median time for one token, from
the row of logits to the accepted token; rows look like a model's (a few likely tokens, a long
tail). llama.cpp's chain is timed from its filled list of candidates on, if llama-cpp-python is
installed; filling the list, which it does for every token, is left out. Repeats are interleaved,
each in another order, so that nobody always comes first into a cold cache.
"""

import argparse
import ctypes
import importlib
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ingot.gguf import GgufWriter, ValueType
from ingot.sampling import ChainBuilder, SamplingParams, TokenSampler, sample_tokens
from ingot.tokenizer import Tokenizer

VOCABULARIES = (151936, 262144)
OFF: dict[str, object] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
DEFAULT = "default chain"
ROWS = 16
HISTORY = 2000  # tokens before the first one chosen: what penalties look at

# What is switched on beside nothing at all (OFF), or beside the defaults ("+").
CASES: dict[str, dict[str, object]] = {
    "default chain": {},
    "greedy": {"temperature": 0.0},
    "+ repeat penalty": {"repeat_penalty": 1.1},
    "+ dry": {"dry_multiplier": 0.8},
    "+ logit bias": {"logit_bias": dict.fromkeys(range(100), 1.0)},
    "+ xtc": {"xtc_probability": 0.5},
    "+ 5 logprobs": {"n_probs": 5},
    "draw only": OFF,
    "temperature": OFF | {"temperature": 0.8},
    "dynamic temperature": OFF | {"temperature": 0.8, "dynatemp_range": 0.4},
    "top_k": OFF | {"top_k": 40},
    "top_p": OFF | {"top_p": 0.95},
    "min_p": OFF | {"min_p": 0.05},
    "typical_p": OFF | {"typical_p": 0.9},
    "top_n_sigma": OFF | {"top_n_sigma": 1.0},
    "epsilon": OFF | {"epsilon_cutoff": 1e-3},
    "eta": OFF | {"eta_cutoff": 1e-3},
    "mirostat 1": OFF | {"mirostat": 1},
    "mirostat 2": OFF | {"mirostat": 2},
    "top_k, adaptive_p": OFF | {"top_k": 40, "adaptive_target": 0.3},
    "top_k, tail_free": OFF | {"top_k": 40, "tfs_z": 0.95},
}


@dataclass(slots=True)
class Result:
    """Median microseconds for one token, by what was timed."""

    vocabulary: int
    ingot: dict[str, float] = field(default_factory=dict)
    ingot_of_eight: dict[str, float] = field(default_factory=dict)
    llama_cpp: dict[str, float] = field(default_factory=dict)


def rows(size: int) -> NDArray[np.float32]:
    """Logits such as models give: the nucleus of 0.95 has tens to hundreds of tokens."""
    random = np.random.default_rng(1)
    made = random.normal(scale=2.0, size=(ROWS, size))
    made += np.where(random.random(made.shape) < 3e-4, random.uniform(4, 14, made.shape), 0.0)
    return made.astype(np.float32)


def tokenizer_of(size: int, folder: Path) -> Tokenizer:
    """A vocabulary of a size; what its tokens are does not matter here."""
    writer = GgufWriter(folder / f"{size}.gguf")
    writer.add("general.architecture", "llama")
    writer.add("tokenizer.ggml.model", "rwkv")
    writer.add("tokenizer.ggml.tokens", [f"t{i}" for i in range(size)], ValueType.STRING)
    writer.add("tokenizer.ggml.eos_token_id", 0)
    writer.write()
    return Tokenizer.from_gguf(folder / f"{size}.gguf")


class Run(Protocol):
    """Something to time: `fill` puts logits in place before the clock starts."""

    def fill(self, logits: NDArray[np.float32]) -> None: ...

    def step(self) -> None: ...


class Ours:
    """Chains of Ingot for a number of requests; a step is one token of all of them."""

    def __init__(self, builder: ChainBuilder, fields: dict[str, object], requests: int) -> None:
        params = SamplingParams(**fields, seed=1)  # type: ignore[arg-type]
        prompt = np.random.default_rng(2).integers(0, 50000, HISTORY).astype(np.int32)
        self._requests = [
            TokenSampler(
                builder.build(params, prompt), logprobs=params.n_probs > 0, count=params.n_probs
            )
            for _ in range(requests)
        ]

    def fill(self, logits: NDArray[np.float32]) -> None:
        self._logits = logits.copy()  # samplers change it

    def step(self) -> None:
        choices = sample_tokens(self._requests, self._logits, 2)
        for request, choice in zip(self._requests, choices, strict=True):
            if isinstance(choice, Exception):
                raise choice
            request.chain.accept(choice.token)


class LlamaCpp:
    """The default chain of llama.cpp, or its greedy sampler."""

    def __init__(self, size: int, greedy: bool) -> None:
        self._lc = lc = importlib.import_module("llama_cpp")
        self._chain = lc.llama_sampler_chain_init(lc.llama_sampler_chain_default_params())
        made = [lc.llama_sampler_init_greedy()]
        if not greedy:
            made = [
                lc.llama_sampler_init_top_k(40),
                lc.llama_sampler_init_top_p(0.95, 0),
                lc.llama_sampler_init_min_p(0.05, 0),
                lc.llama_sampler_init_temp(0.8),
                lc.llama_sampler_init_dist(1),
            ]
        for sampler in made:
            lc.llama_sampler_chain_add(self._chain, sampler)
        self._entries = np.zeros(size, [("id", "<i4"), ("logit", "<f4"), ("p", "<f4")])
        self._data = (lc.llama_token_data * size).from_buffer(self._entries)
        self._ids = np.arange(size, dtype=np.int32)

    def fill(self, logits: NDArray[np.float32]) -> None:
        self._entries["id"], self._entries["logit"] = self._ids, logits[0]

    def step(self) -> None:
        lc = self._lc
        array = lc.llama_token_data_array(self._data, len(self._entries), -1, False)
        lc.llama_sampler_apply(self._chain, ctypes.byref(array))
        lc.llama_sampler_accept(self._chain, array.data[array.selected].id)


def medians(
    runs: Mapping[str, Run],
    logits: NDArray[np.float32],
    repeats: int,
    requests: int = 1,
) -> dict[str, float]:
    """Microseconds a token."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    random, order = Random(1), list(runs.items())
    for repeat in range(repeats + 2):
        first = repeat * requests % (ROWS - requests + 1)
        random.shuffle(order)
        for name, run in order:
            run.fill(logits[first : first + requests])
            start = time.perf_counter()
            run.step()
            if repeat >= 2:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(s) / requests * 1e6 for name, s in seconds.items()}


def measure(size: int, repeats: int) -> Result:
    result, logits = Result(size), rows(size)
    with tempfile.TemporaryDirectory() as folder:
        builder = ChainBuilder(tokenizer_of(size, Path(folder)))
        runs = {name: Ours(builder, fields, 1) for name, fields in CASES.items()}
        peers: dict[str, LlamaCpp] = {}
        if importlib.util.find_spec("llama_cpp"):
            peers = {DEFAULT: LlamaCpp(size, greedy=False), "greedy": LlamaCpp(size, greedy=True)}
        every: dict[str, Run] = {f"ours {name}": run for name, run in runs.items()}
        every |= {f"peer {name}": run for name, run in peers.items()}
        both = medians(every, logits, repeats)
        result.ingot = {name: both[f"ours {name}"] for name in runs}
        result.llama_cpp = {name: both[f"peer {name}"] for name in peers}
        eight = {
            DEFAULT: Ours(builder, {}, 8),
            "greedy": Ours(builder, CASES["greedy"], 8),
        }
        result.ingot_of_eight = medians(eight, logits, max(1, repeats // 4), requests=8)
    return result


def table(result: Result) -> str:
    lines = [f"{result.vocabulary} tokens: microseconds a token"]
    for name, value in result.ingot.items():
        notes = []
        if name in result.ingot_of_eight:
            notes.append(f"{result.ingot_of_eight[name]:.0f} of eight at once")
        if name in result.llama_cpp:
            peer = result.llama_cpp[name]
            notes.append(f"llama.cpp {peer:.0f}, ingot is {peer / value:.1f}x as fast")
        lines.append(f"  {name:22}{value:8.0f}   {'; '.join(notes)}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--vocabulary", type=int, action="append", help="may be repeated")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="print the figures for programs")
    options = parser.parse_args()
    if not importlib.util.find_spec("llama_cpp"):
        print("llama.cpp is left out: make test-oracle installs it", file=sys.stderr)
    results = [measure(size, options.repeats) for size in options.vocabulary or VOCABULARIES]
    if options.json:
        json.dump([asdict(result) for result in results], sys.stdout, indent=1)
        print()
    else:
        print("\n".join(table(result) for result in results))


if __name__ == "__main__":
    main()
