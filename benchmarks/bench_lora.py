"""LoRA adapters: eight requests at once with eight adapters, with one, and with none.

An engine that has no adapters at all shows what it costs to have loaded some that nobody uses:
the ratio "loaded, unused" / "none loaded", which should be 1.

    python benchmarks/bench_lora.py [--model FILE] [--rank 16] [--rounds 5] [--device cpu] [--json]

The adapters are made up, in F16, for all matrices of attention and MLP. The kinds take turns, in
both directions; rows show medians of tokens per second while all requests decode, and the median of
the rounds' ratios, in which a slow moment of the machine counts once.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import models
from ingot import LLM
from ingot.adapters import Adapter, FloatMatrix, LowRank
from ingot.adapters.gguf_adapter import write_gguf_adapter
from ingot.graph import ComputationGraph

REQUESTS, PROMPT, TOKENS, CONTEXT = 8, 32, 64, 128
ANCHORS = {"loaded, unused": "none loaded", "eight": "one"}
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "max_tokens": TOKENS}


def made_up(graph: ComputationGraph, rank: int, seed: int) -> Adapter:
    """An adapter of all matrices inside layers."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> FloatMatrix:
        return FloatMatrix.of(random.normal(0, 0.01, (rows, columns)).astype(np.float16))

    shapes = {
        weight.name: weight.tensor_shape
        for op in graph.ops
        if op.layer is not None
        for weight in op.adapted_matrices
    }
    tensors = {
        name: LowRank(matrix(rank, columns), matrix(rows, rank), 1.0)
        for name, (rows, columns) in shapes.items()
    }
    return Adapter("made up", tensors)


def rate(llm: LLM, adapters: list[str], offset: int) -> float:
    """Tokens per second of requests that decode at once, the first token left out."""
    size = llm.graph.vocabulary_size
    requests = [
        llm.stream(
            ((np.arange(PROMPT) * 7919 + 13 + 101 * (offset + number)) % size).astype(np.int32),
            adapter=adapters[number % len(adapters)] if adapters else {},
            reuse=False,
            **GREEDY,
        )
        for number in range(REQUESTS)
    ]
    for request in requests:
        next(request)
    started, before = time.perf_counter(), sum(len(request.token_ids) for request in requests)
    for request in requests:
        request.result()
    after = sum(len(request.token_ids) for request in requests)
    return (after - before) / (time.perf_counter() - started)


def median_ratio(rates: Sequence[float], anchors: Sequence[float]) -> float:
    """The median of the ratios of each round."""
    return statistics.median(a / b for a, b in zip(rates, anchors, strict=True))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = [f"adapter{number}" for number in range(REQUESTS)]
    path = given.model or models.smollm2()
    with (
        tempfile.TemporaryDirectory() as folder,
        LLM(path, context=CONTEXT, device=given.device) as bare,
        LLM(path, context=CONTEXT, device=given.device) as llm,
    ):
        kinds: dict[str, tuple[LLM, list[str]]] = {
            "none loaded": (bare, []),
            "loaded, unused": (llm, []),
            "one": (llm, names[:1]),
            "eight": (llm, names),
        }
        architecture = llm.file.metadata.string("general.architecture")
        for number, name in enumerate(names):
            file = Path(folder) / f"{name}.gguf"
            write_gguf_adapter(
                made_up(llm.graph, given.rank, number), architecture, file, name=name
            )
            llm.add_adapter(name, file)
        found: dict[str, list[float]] = {kind: [] for kind in kinds}
        for turn in range(given.rounds + 1):
            for kind in list(kinds)[:: 1 if turn % 2 else -1]:
                engine, chosen = kinds[kind]
                measured = rate(engine, chosen, REQUESTS * turn)
                if turn:  # the first turn warms up
                    found[kind].append(measured)
    medians = {kind: statistics.median(rates) for kind, rates in found.items()}
    ratios = {
        f"{kind} / {anchor}": median_ratio(found[kind], found[anchor])
        for kind, anchor in ANCHORS.items()
    }
    if given.json:
        print(json.dumps({"rank": given.rank, "tokens_per_second": medians, "ratios": ratios}))
        return
    print(f"{REQUESTS} requests at once, rank {given.rank}, medians of {given.rounds} rounds")
    for kind, tokens in medians.items():
        print(f"{kind:>28} {tokens:9.1f} tokens/s")
    for name, ratio in ratios.items():
        print(f"{name:>28} {ratio:9.3f} ({ratio - 1:+.1%})")


if __name__ == "__main__":
    main()
