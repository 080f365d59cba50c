"""KL divergence per token of Ingot and llama.cpp from the float32 reference.

    python benchmarks/accuracy.py --peer PYTHON [--tokens 2048] [--only gemma] [--json]

The reference dequantizes all weights and computes in float32 (NumPy); both engines compute on the
quantized weights with rounded inputs. The text is this project's documentation, split into chunks
of 512 tokens. Each chunk starts with an empty context and is read as a prompt (by Ingot at both
precisions) and token by token. KL(reference || engine) is averaged over all positions; `top` is the
share of positions where the most likely token is the reference's.

PYTHON is an interpreter with llama-cpp-python (see benchmarks/peer.py).
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

import models
from ingot import LLM
from ingot.backends.reference import Reference
from peer import Peer
from stepper import Stepper

CHUNK = 512
ROWS = 64  # positions whose logits are compared at once
ROOT = Path(__file__).parent.parent
TEXTS = ("README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/performance.md")

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Row:
    """One engine on one model."""

    model: str
    engine: str
    tokens: int
    mean_kl: float
    top: float


def log_softmax(logits: Logits) -> NDArray[Any]:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return wide


def divergences(reference: Logits, engine: Logits) -> Iterator[tuple[float, bool]]:
    """KL and whether the most likely token agrees, position by position."""
    for start in range(0, len(reference), ROWS):
        p = log_softmax(reference[start : start + ROWS])
        q = log_softmax(engine[start : start + ROWS])
        yield from zip(
            (np.exp(p) * (p - q)).sum(axis=-1).tolist(),
            (p.argmax(axis=-1) == q.argmax(axis=-1)).tolist(),
            strict=True,
        )


def measure(path: Path, peer: Peer, tokens: int) -> list[Row]:
    """All engines and phases on one model."""
    found: dict[str, list[tuple[float, bool]]] = {}
    with (
        LLM(path, context=CHUNK, kv_type="f16", precision="fast") as llm,
        LLM(path, context=CHUNK, kv_type="f16", precision="exact") as exact,
        TemporaryDirectory() as folder,
    ):
        text = "\n".join((ROOT / name).read_text() for name in TEXTS)
        ids = llm.tokenizer.encode(text)[:tokens]
        if len(ids) < tokens:
            sys.exit(f"the text has {len(ids)} tokens, {tokens} are asked for")
        reference = Reference(llm.graph, llm.file)
        stepper = Stepper(path, threads=2, context=CHUNK)
        peer.open(path, threads=2, context=CHUNK)
        file = Path(folder) / "logits"
        for start in range(0, tokens, CHUNK):
            chunk = ids[start : start + CHUNK]
            truth = reference.forward(chunk)

            def add(engine: str, logits: Logits, truth: Logits = truth) -> None:
                found.setdefault(engine, []).extend(divergences(truth, logits))

            add("Ingot, prompt", llm.logits(chunk))
            add("Ingot, exact prompt", exact.logits(chunk))
            add("Ingot, token by token", stepper.logits(chunk))
            for phase, one_by_one in (("prompt", False), ("token by token", True)):
                size = peer.logits(chunk, file, one_by_one=one_by_one)
                add(f"llama.cpp, {phase}", np.fromfile(file, np.float32).reshape(-1, size))
    return [
        Row(
            path.stem,
            engine,
            len(pairs),
            float(np.mean([kl for kl, _ in pairs])),
            float(np.mean([same for _, same in pairs])),
        )
        for engine, pairs in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default=sys.executable, help="an interpreter with llama.cpp")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--only", choices=("smollm2", "gemma"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with Peer(options.peer) as peer:
        names = [options.only] if options.only else ["smollm2", "gemma"]
        for path in (getattr(models, name)() for name in names):
            for row in measure(path, peer, options.tokens):
                rows.append(row)
                print(
                    f"{row.model:32} {row.engine:26} {row.tokens:6} {row.mean_kl:10.2e} "
                    f"{row.top:7.2%}",
                    file=sys.stderr,
                )
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
