"""Concurrent requests: throughput next to llama.cpp, latency, prefix reuse, speculative decoding.

    python benchmarks/bench_batching.py --peer PYTHON [--models FOLDER] [--rounds 3] [--json]

FOLDER contains synthetic models (benchmarks/synthetic.py); without it only SmolLM2 runs. PYTHON is
an interpreter with llama-cpp-python (see peer.py). The engines take turns; rows show medians.
"""

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

import models
from ingot import LLM
from ingot.engine.options import Speculation
from peer import Peer

PROMPT, TOKENS = 32, 32
LONG = 4000  # tokens of a prompt that others have to live with
CHUNK = 128  # tokens of it between two tokens of theirs
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}


def prompt(llm: LLM, number: int, length: int = PROMPT) -> np.ndarray:
    """Tokens without meaning, different from the first on."""
    ids = (np.arange(length) * 7919 + 13 + 101 * number) % llm.graph.vocabulary_size
    return ids.astype(np.int32)


class Reader(threading.Thread):
    """Reads a request and notes when its tokens came."""

    def __init__(self, llm: LLM, ids: np.ndarray, tokens: int) -> None:
        super().__init__()
        self._llm, self._ids, self._tokens = llm, ids, tokens
        self.times: list[float] = []
        self.started = 0.0

    def run(self) -> None:
        self.started = time.perf_counter()
        stamp = lambda *_: self.times.append(time.perf_counter())  # noqa: E731
        self.request = self._llm.stream(
            self._ids, max_tokens=self._tokens, processors=[stamp], **GREEDY
        )
        for _ in self.request:
            pass

    @property
    def first(self) -> float:
        """Seconds to the first token."""
        return self.times[0] - self.started

    @property
    def gaps(self) -> list[float]:
        """Seconds between tokens."""
        return np.diff(self.times).tolist()


def serve(llm: LLM, count: int, offset: int) -> tuple[float, list[Reader]]:
    """Seconds for so many requests at once, and who read them."""
    readers = [Reader(llm, prompt(llm, offset + n), TOKENS) for n in range(count)]
    started = time.perf_counter()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return time.perf_counter() - started, readers


def throughput(
    path: Path, peer: Peer | None, rounds: int, counts: list[int]
) -> list[dict[str, Any]]:
    """Tokens per second of all requests together, and how long each waited."""
    rows = []
    with LLM(path, threads=2, context=4224, cache_tokens=8192, reuse="none") as llm:
        if peer:
            peer.open(path, threads=2, context=128, sequences=max(counts))
        serve(llm, 2, 0)
        for count in counts:
            ours, theirs, firsts, gaps = [], [], [], []
            for _ in range(rounds):
                seconds, readers = serve(llm, count, 0)
                ours.append(count * TOKENS / seconds)
                firsts += [reader.first for reader in readers]
                gaps += [gap for reader in readers for gap in reader.gaps]
                if peer:
                    theirs.append(count * TOKENS / peer.serve(PROMPT, TOKENS, count))
            rows.append(
                {
                    "model": path.stem,
                    "requests": count,
                    "tokens/s": statistics.median(ours),
                    "llama.cpp": statistics.median(theirs) if theirs else None,
                    "first token ms": [1e3 * float(q) for q in np.quantile(firsts, (0.5, 0.99))],
                    "between tokens ms": [1e3 * float(q) for q in np.quantile(gaps, (0.5, 0.99))],
                }
            )
            show(rows[-1])
    return rows


def show(row: dict[str, Any]) -> None:
    peer = row["llama.cpp"]
    beside = f"{peer:8.1f} {row['tokens/s'] / peer:5.2f}x" if peer else f"{'':15}"
    first, between = row["first token ms"], row["between tokens ms"]
    print(
        f"{row['model']:28} {row['requests']:3} {row['tokens/s']:8.1f} {beside}   first "
        f"{first[0]:7.0f} {first[1]:7.0f}   between {between[0]:6.1f} {between[1]:6.1f} ms",
        file=sys.stderr,
        flush=True,
    )


def pause(path: Path) -> dict[str, Any]:
    """What a long prompt does to a text that is being written, and to a short one that arrives."""
    with LLM(path, threads=2, context=4224, reuse="none", chunk_tokens=CHUNK) as llm:
        writer = Reader(llm, prompt(llm, 1), 600)
        writer.start()
        while len(writer.times) < 8:
            time.sleep(0.001)
        long = llm.stream(prompt(llm, 2, LONG), max_tokens=1, **GREEDY)
        while long.timings.prompt_seconds == 0 and long.state != "prompt":
            time.sleep(0.001)
        began = time.perf_counter()
        arriving = Reader(llm, prompt(llm, 3), 2)
        arriving.start()
        arriving.join()
        long.result()
        ended = time.perf_counter()
        beside = [
            gap
            for gap, at in zip(writer.gaps, writer.times[1:], strict=False)
            if began <= at <= ended
        ]
        found = {
            "model": path.stem,
            "long prompt s": ended - began,
            "alone ms": 1e3 * statistics.median(writer.gaps[:6]),
            "longest pause ms": 1e3 * max(beside),
            "median pause ms": 1e3 * statistics.median(beside),
            "first token of a request that arrives ms": 1e3 * arriving.first,
        }
        writer.request.cancel()
        writer.join()
        return found


def prefix(path: Path, rounds: int) -> dict[str, Any]:
    """The first token with a prefix of 1,000 tokens, the first time and the second."""
    first: list[float] = []
    second: list[float] = []
    with LLM(path, threads=2, context=2048) as llm:
        for number in range(rounds):
            shared = prompt(llm, 500 + number, 1000)
            for times, own in ((first, 1), (second, 2)):
                asked = np.concatenate([shared, prompt(llm, 900 + own, 8)])
                started = time.perf_counter()
                next(llm.stream(asked, max_tokens=2, **GREEDY))
                times.append(time.perf_counter() - started)
    return {
        "model": path.stem,
        "first ms": 1e3 * statistics.median(first),
        "second ms": 1e3 * statistics.median(second),
        "ratio": statistics.median(first) / statistics.median(second),
    }


def guesses(rounds: int) -> list[dict[str, Any]]:
    """A task that copies and one that does not, with guesses and without."""
    listing = ", ".join(f'{{"name": "part {n}", "size": {n * 37 % 90}}}' for n in range(12))
    copying = f"Here is a list:\n[{listing}]\nThe same list once more:\n["
    story = "The history of the city begins with a small harbour. In the year"
    drawn = {"temperature": 0.9, "seed": 1, "ignore_eos": True}
    tasks: dict[str, tuple[str, dict[str, Any]]] = {
        "copies": (copying, GREEDY),
        "free text": (story, drawn),
    }
    tokens = 220
    rows = []
    path = models.smollm2()
    ways: tuple[Speculation, ...] = ("off", "ngram", "auto")
    with ExitStack() as stack:
        opened = {way: stack.enter_context(LLM(path, threads=2, speculation=way)) for way in ways}
        for task, (text, fields) in tasks.items():
            seconds: dict[str, list[float]] = {way: [] for way in ways}
            texts = set()
            for _ in range(rounds):
                for way, llm in opened.items():
                    llm.engine.clear_cache()
                    done = llm.generate(text, max_tokens=tokens, **fields)
                    seconds[way].append(done.timings.generation_seconds)
                    texts.add(done.token_ids)
            for way in ways[1:]:
                ratios = [a / b for a, b in zip(seconds["off"], seconds[way], strict=True)]
                rows.append(
                    {
                        "task": task,
                        "speculation": way,
                        "plain tokens/s": tokens / statistics.median(seconds["off"]),
                        "with guesses": tokens / statistics.median(seconds[way]),
                        "ratio": statistics.median(ratios),
                        "same text": len(texts) == 1,
                    }
                )
                print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="an interpreter with llama.cpp")
    parser.add_argument("--models", type=Path, help="a folder of synthetic models")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", default="1,2,4,8,16,32", help="how many at once: a list")
    parser.add_argument("--only", choices=("throughput", "pause", "prefix", "guesses"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    files = [models.smollm2()]
    if options.models:
        files.append(options.models / "qwen2-1.5b-Q4_K_M.gguf")

    def each(measure: Callable[[Path], Any]) -> list[Any]:
        found = []
        for path in files:
            found.append(measure(path))
            if isinstance(found[-1], dict):
                print(found[-1], file=sys.stderr, flush=True)
        return found

    counts = [int(count) for count in options.requests.split(",")]
    result: dict[str, Any] = {}
    wanted = [options.only] if options.only else ["throughput", "pause", "prefix", "guesses"]
    if "throughput" in wanted:
        with Peer(options.peer) if options.peer else nullcontext() as peer:
            result["throughput"] = each(lambda path: throughput(path, peer, options.rounds, counts))
    if "pause" in wanted:
        result["pause"] = each(pause)
    if "prefix" in wanted:
        result["prefix"] = each(lambda path: prefix(path, options.rounds))
    if "guesses" in wanted:
        result["guesses"] = guesses(options.rounds)
    if options.json:
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
