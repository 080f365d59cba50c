"""Recent networks beside llama.cpp, and what a token costs as the context grows.

    python benchmarks/bench_recent.py --peer PYTHON [--models FOLDER] [--rounds 3] [--json]

Three files of real width and few layers are written to FOLDER once (about 11 GB): Qwen3-Next, most
layers of which keep a state instead of keys and values, the same with attention in every layer, and
DeepSeek V2 Lite, which keeps one latent of 576 elements of a token.

- prefill of 512 tokens by Ingot with states and with attention alone, in turns: what the scan of a
  prompt costs;
- prefill of 512 tokens, and decode with an empty context and after 2048 tokens, in turns with
  llama.cpp: medians, and the median of the rounds' ratios (llama.cpp opens no Qwen3-Next without
  states);
- decode of Ingot after up to 32,768 tokens, whose blocks of the cache hold zeros. How the time
  grows is the architecture's: a state costs the same at any length, a latent or a key costs its
  bytes;
- the memory of the cache for 32,768 tokens: the plan, and how much the process has grown from the
  first token to the last.

PYTHON is an interpreter with llama-cpp-python (see benchmarks/peer.py); without it, Ingot runs
alone. It takes about ten minutes on two cores.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import models
from peer import Peer
from stepper import Stepper
from synthetic_recent import HYBRID, PURE, RECENT

MIX = "Q4_K_M"
PROMPT, GENERATED, DEPTH = 512, 16, 2048
DEPTHS = (0, 2048, 4096, 8192, 16384, 32768)
SPARE = 64 * GENERATED  # tokens of the context beyond the deepest


@dataclass(frozen=True, slots=True)
class Test:
    """Tokens per second; of llama.cpp if it ran."""

    model: str
    name: str
    ingot: float
    peer: float | None = None
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of a token by the length of the context, and the memory of the longest one."""

    model: str
    milliseconds: dict[int, float]
    planned: int  # bytes of the cache
    grown: int  # bytes of the process, from the shortest context to the longest


def anonymous_memory() -> int:
    """Bytes of this process that are no mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


def read_once(path: Path) -> None:
    """Have the whole file in memory: a model that is mapped reads its experts from there."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def race(path: Path, peer: Peer | None, threads: int, rounds: int) -> list[Test]:
    """Both engines on one file, taking turns."""
    context = DEPTH + SPARE
    mine = Stepper(path, threads=threads, context=context)
    engines: list[Stepper | Peer] = [mine]
    if peer:
        peer.open(path, threads=threads, context=context)
        read_once(path)
        engines.append(peer)
    tests: list[tuple[str, int, Callable[[Stepper | Peer], float]]] = [
        (f"prompt {PROMPT}", PROMPT, lambda engine: engine.prompt(PROMPT)),
        ("decode", GENERATED, lambda engine: engine.generate(GENERATED, 0)),
        (f"decode at {DEPTH}", GENERATED, lambda engine: engine.generate(GENERATED, DEPTH)),
    ]
    found = []
    for name, tokens, seconds in tests:
        rates: list[list[float]] = [[] for _ in engines]
        for engine in engines:  # to warm up
            seconds(engine)
        for _ in range(rounds):
            for engine, measured in zip(engines, rates, strict=True):
                measured.append(tokens / seconds(engine))
        middle = [statistics.median(measured) for measured in rates]
        if peer:
            ratio = statistics.median(a / b for a, b in zip(*rates, strict=True))
            found.append(Test(path.stem, name, middle[0], middle[1], ratio))
        else:
            found.append(Test(path.stem, name, middle[0]))
        print_test(found[-1])
    mine.close()
    return found


def beside_attention(paths: tuple[Path, Path], threads: int, rounds: int) -> list[Test]:
    """A prompt through layers with states and through attention alone, taking turns."""
    both = [Stepper(path, threads=threads, context=PROMPT + SPARE) for path in paths]
    for one in both:  # to warm up
        one.prompt(PROMPT)
    times = [[one.prompt(PROMPT) for one in both] for _ in range(rounds)]
    for one in both:
        one.close()
    rates = [PROMPT / statistics.median(column) for column in zip(*times, strict=True)]
    share = statistics.median(pure / hybrid for hybrid, pure in times)
    print(
        f"prompt {PROMPT}: {rates[0]:.1f} tokens/s with states, {rates[1]:.1f} with attention",
        end="",
    )
    print(f" alone: {share:.2f}x", flush=True)
    return [
        Test(path.stem, f"prompt {PROMPT}, in turns", rate)
        for path, rate in zip(paths, rates, strict=True)
    ]


def cost(path: Path, threads: int, rounds: int) -> Cost:
    """What a token costs after more and more of them."""
    mine = Stepper(path, threads=threads, context=DEPTHS[-1] + SPARE)
    mine.generate_at(GENERATED, 0)
    before = anonymous_memory()
    milliseconds = {}
    for depth in DEPTHS:
        mine.generate_at(GENERATED, depth)
        times = [mine.generate(GENERATED, depth) for _ in range(rounds)]
        milliseconds[depth] = 1000 * statistics.median(times) / GENERATED
    found = Cost(path.stem, milliseconds, mine.planned_bytes, anonymous_memory() - before)
    mine.close()
    print_cost(found)
    return found


def print_test(test: Test) -> None:
    peer = "" if test.peer is None else f"   llama.cpp {test.peer:8.1f}   {test.ratio:5.2f}x"
    print(f"{test.model:34} {test.name:16} {test.ingot:8.1f} tokens/s{peer}", flush=True)


def print_cost(found: Cost) -> None:
    print(f"{found.model}: milliseconds of a token, by the tokens before it")
    most = max(found.milliseconds.values())
    for depth, time in found.milliseconds.items():
        print(f"  {depth:6} {time:8.2f}  {'#' * round(40 * time / most)}")
    print(
        f"  cache for {DEPTHS[-1] + SPARE} tokens: planned {found.planned / 2**20:.0f} MiB; from "
        f"the first token on the process has grown by {found.grown / 2**20:.0f} MiB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter with llama.cpp")
    parser.add_argument("--models", type=Path, default=Path("build/models"), metavar="FOLDER")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print all numbers at the end")
    options = parser.parse_args()
    chosen = {
        name: models.synthetic(name, MIX, options.models) for name in RECENT if options.only in name
    }
    tests: list[Test] = []
    if {HYBRID, PURE} <= chosen.keys():
        pair = chosen[HYBRID], chosen[PURE]
        tests += beside_attention(pair, options.threads, options.rounds)
    for name in [name for name in chosen if name != PURE]:
        with ExitStack() as stack:  # a model's memory is free before the next one is opened
            peer = stack.enter_context(Peer(options.peer)) if options.peer else None
            tests += race(chosen[name], peer, options.threads, options.rounds)
    costs = [cost(path, options.threads, options.rounds) for path in chosen.values()]
    if options.json:
        print(json.dumps({"tests": list(map(asdict, tests)), "costs": list(map(asdict, costs))}))


if __name__ == "__main__":
    main()
