"""Time from the start of `ingot run` to the first byte of text.

    python benchmarks/bench_first_token.py [--json] [--rounds N] [-m MODEL]

It runs `ingot run` in fresh processes, one after another, with a warm page cache and with Python's
compiled files. Other fresh processes do the same work with timestamps between its parts. All
numbers are medians. The parts come from other runs than the whole, so they need not add up.
"""

import argparse
import compileall
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import ingot
from ingot import store

ROUNDS = 15
MOST_SECONDS = 0.5
AIM_SECONDS = 0.25
PROMPT = "Explain in two sentences why the sky is blue."
INGOT = Path(sys.executable).with_name("ingot")

# Each stage's name, printed with the seconds since the stage before it.
STAGES = """
import sys, time
clock = time.perf_counter
stamps = [("interpreter", time.time() - float(sys.argv[1]))]
last = clock()
def stage(name):
    global last
    stamps.append((name, clock() - last))
    last = clock()
import ingot.cli
stage("import the command line")
import numpy
stage("import NumPy")
from ingot.cli import run
stage("import the engine")
llm = run.LLM(sys.argv[2])
stage("open the model")
import ingot.tokenizer.chat_template
stage("import templates")
ids = run._prompt_ids(llm, sys.argv[3], raw=False)
stage("render and tokenize")
next(llm.stream(ids, max_tokens=1, temperature=0))
stage("prompt and first token")
for name, seconds in stamps:
    print(seconds, name)
"""


@dataclass(frozen=True)
class Result:
    model: str
    rounds: int
    first_token_s: float
    fastest_s: float
    slowest_s: float
    parts_s: dict[str, float]
    target_met: bool
    aim_met: bool


def first_token(model: Path) -> float:
    """Seconds until `ingot run` writes its first byte."""
    started = time.perf_counter()
    with subprocess.Popen(
        [str(INGOT), "run", "-m", str(model), "-n", "1", PROMPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        elapsed = time.perf_counter() - started
        process.stdout.read()
    if not first or process.returncode:
        sys.exit(f"ingot run ended with status {process.returncode}")
    return elapsed


def parts(model: Path) -> dict[str, float]:
    """Seconds of each stage in one fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", STAGES, str(time.time()), str(model), PROMPT],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (line.split(" ", 1) for line in done.stdout.splitlines())
    return {name: float(seconds) for seconds, name in rows}


def measure(model: Path, rounds: int) -> Result:
    compileall.compile_dir(Path(ingot.__file__).parent, quiet=1)
    first_token(model)  # and the page cache
    whole, staged = [], []
    for _ in range(rounds):
        whole.append(first_token(model))
        staged.append(parts(model))
    return Result(
        model=model.name,
        rounds=rounds,
        first_token_s=median(whole),
        fastest_s=min(whole),
        slowest_s=max(whole),
        parts_s={name: median(one[name] for one in staged) for name in staged[0]},
        target_met=median(whole) <= MOST_SECONDS,
        aim_met=median(whole) <= AIM_SECONDS,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default=store.DEFAULT)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(store.resolve(options.model), options.rounds)
    if options.json:
        print(json.dumps(asdict(result), indent=2))
        return
    print(f"{result.model}: process start to first token, {result.rounds} runs")
    print(
        f"  median {result.first_token_s:.3f} s ({result.fastest_s:.3f} to "
        f"{result.slowest_s:.3f}); at most {MOST_SECONDS} s: "
        f"{'yes' if result.target_met else 'no'}; aim {AIM_SECONDS} s: "
        f"{'yes' if result.aim_met else 'no'}"
    )
    for name, seconds in result.parts_s.items():
        print(f"  {seconds:6.3f} s  {name}")


if __name__ == "__main__":
    main()
