"""Tokens per second of one to 32 sequences that generate together, and of a prompt.

Steps are run one by one, without the engine's scheduler. Each number is the best of three rounds,
because a busy machine can only make them worse.

    python benchmarks/bench_sequences.py --threads 1,4,16 --folder /tmp qwen2-1.5b llama3-8b
"""

import argparse
from pathlib import Path

import models
from stepper import Stepper

SEQUENCES = (1, 2, 4, 8, 16, 32)
STEPS, ROUNDS, PROMPT = 4, 3, 512


def measure(path: Path, threads: int, precision: str | None) -> list[float]:
    """Tokens per second of each number of sequences, then of the prompt."""
    stepper = Stepper(
        path, threads=threads, context=PROMPT + 128, sequences=max(SEQUENCES), precision=precision
    )
    found = []
    for sequences in SEQUENCES:
        stepper.generate(2, 0, sequences)
        best = min(stepper.generate(STEPS, 0, sequences) for _ in range(ROUNDS))
        found.append(STEPS * sequences / best)
    stepper.prompt(PROMPT)
    found.append(PROMPT / min(stepper.prompt(PROMPT) for _ in range(ROUNDS)))
    stepper.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("shapes", nargs="+", help="of benchmarks/synthetic.py")
    parser.add_argument("--mix", default="Q4_K_M")
    parser.add_argument("--threads", default="2", help="numbers, with commas between")
    parser.add_argument("--precision", choices=["fast", "exact"])
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    options = parser.parse_args()
    heads = "".join(f"{f'{n} seq':>9}" for n in SEQUENCES)
    print(f"{'model':24} threads{heads}{'prompt':>9}")
    for shape in options.shapes:
        path = models.synthetic(shape, options.mix, options.folder)
        for threads in map(int, options.threads.split(",")):
            row = "".join(f"{n:9.1f}" for n in measure(path, threads, options.precision))
            print(f"{path.stem:24} {threads:7}{row}", flush=True)


if __name__ == "__main__":
    main()
