"""Recent networks beside llama.cpp, and what a token costs as the context grows.

    python benchmarks/bench_recent.py --peer PYTHON [--models FOLDER] [--rounds 3] [--json]
    python benchmarks/bench_recent.py --device cuda --peer PYTHON

Five files of real width and few layers are written to FOLDER once (about 13 GB): Qwen3-Next, most
layers of which keep a state of the delta rule instead of keys and values, Granite 4 H Tiny, most
layers of which keep one of Mamba 2, both again with attention in every layer, and DeepSeek V2 Lite,
which keeps one latent of 576 elements of a token.

- prefill by Ingot with states and with attention alone, in turns: what the scan of a prompt costs;
- prefill, and decode with an empty context and after 2048 tokens, in turns with llama.cpp: medians,
  and the median of the rounds' ratios (llama.cpp opens no such networks without states);
- decode of Ingot after up to 32,768 tokens, whose blocks of the cache hold zeros. How the time
  grows is the architecture's: a state costs the same at any length, a latent or a key costs its
  bytes;
- the memory for 32,768 tokens: the plan of the cache, and how much the process (or the GPU's used
  memory) has grown from the first token to the last. A GPU's cache is there from the beginning, so
  nothing should be added; what everything takes there is compared with its plan.

Prompts have 512 tokens, and 16 are generated at a time; on a GPU 4096 and 128. PYTHON is an
interpreter with llama-cpp-python (see benchmarks/peer.py), for a GPU one that was built with CUDA;
without it, Ingot runs alone. It takes about fifteen minutes on two cores.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import models
from ingot.backends.backend import choose_device
from ingot.errors import ConfigError
from peer import Peer
from stepper import Stepper
from synthetic_recent import PAIRS, RECENT

MIX = "Q4_K_M"
DEPTH = 2048
DEPTHS = (0, 2048, 4096, 8192, 16384, 32768)


@dataclass(frozen=True, slots=True)
class Setting:
    """Where the engines run, how often, and the tokens of a prompt and of a stretch of decode."""

    device: str
    threads: int
    rounds: int
    prompt: int
    generated: int

    @property
    def spare(self) -> int:
        """Tokens of the context beyond the deepest."""
        return 64 * self.generated

    def open(self, path: Path, depth: int) -> Stepper:
        """A model of Ingot with a context for so many tokens and what is generated after them."""
        context = depth + self.spare
        return Stepper(path, threads=self.threads, context=context, device=self.device)

    def memory(self) -> int:
        """Bytes that are used: of this process, no mapped files; or of the GPU, by any process."""
        if gpu := choose_device(self.device):
            return -gpu.free_memory()  # only differences are asked for
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


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
    tokens: int  # of the cache
    planned: int  # bytes of the cache
    grown: int  # bytes of the process or the GPU, from the shortest context to the longest
    planned_device: int | None = None  # bytes of weights, steps and cache on a GPU
    taken_device: int | None = None  # bytes that the GPU has less than before the model was opened


def read_once(path: Path) -> None:
    """Have the whole file in memory: a model that is mapped reads its experts from there."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def race(path: Path, peer: Peer | None, setting: Setting) -> list[Test]:
    """Both engines on one file, taking turns."""
    deepest, prompt, generated = max(DEPTH, setting.prompt), setting.prompt, setting.generated
    mine = setting.open(path, deepest)
    engines: list[Stepper | Peer] = [mine]
    if peer:
        peer.open(path, threads=setting.threads, context=deepest + setting.spare)
        read_once(path)
        engines.append(peer)
    tests: list[tuple[str, int, Callable[[Stepper | Peer], float]]] = [
        (f"prompt {prompt}", prompt, lambda engine: engine.prompt(prompt)),
        ("decode", generated, lambda engine: engine.generate(generated, 0)),
        (f"decode at {DEPTH}", generated, lambda engine: engine.generate(generated, DEPTH)),
    ]
    found = []
    for name, tokens, seconds in tests:
        rates: list[list[float]] = [[] for _ in engines]
        for engine in engines:  # to warm up
            seconds(engine)
        for _ in range(setting.rounds):
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


def beside_attention(paths: tuple[Path, Path], setting: Setting) -> list[Test]:
    """A prompt through layers with states and through attention alone, taking turns."""
    both = [setting.open(path, setting.prompt) for path in paths]
    for one in both:  # to warm up
        one.prompt(setting.prompt)
    times = [[one.prompt(setting.prompt) for one in both] for _ in range(setting.rounds)]
    for one in both:
        one.close()
    rates = [setting.prompt / statistics.median(column) for column in zip(*times, strict=True)]
    share = statistics.median(pure / hybrid for hybrid, pure in times)
    print(
        f"{paths[0].stem}, prompt {setting.prompt}: medians {rates[0]:.1f} tokens/s with states, "
        f"{rates[1]:.1f} with attention alone; median of the rounds' ratios {share:.2f}x",
        flush=True,
    )
    return [
        Test(paths[0].stem, f"prompt {setting.prompt}, in turns", rates[0], ratio=share),
        Test(paths[1].stem, f"prompt {setting.prompt}, in turns", rates[1]),
    ]


def cost(path: Path, setting: Setting) -> Cost:
    """What a token costs after more and more of them."""
    closed, generated = setting.memory(), setting.generated
    mine = setting.open(path, DEPTHS[-1])
    mine.generate_at(generated, 0)
    before = setting.memory()
    milliseconds = {}
    for depth in DEPTHS:
        mine.generate_at(generated, depth)
        times = [mine.generate(generated, depth) for _ in range(setting.rounds)]
        milliseconds[depth] = 1000 * statistics.median(times) / generated
    after, on_gpu = setting.memory(), setting.device != "cpu"
    found = Cost(
        path.stem,
        milliseconds,
        tokens=DEPTHS[-1] + setting.spare,
        planned=mine.planned_bytes,
        grown=after - before,
        planned_device=mine.planned_device_bytes if on_gpu else None,
        taken_device=after - closed if on_gpu else None,
    )
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
        f"  cache for {found.tokens} tokens: planned {found.planned / 2**20:.0f} MiB; from the "
        f"first token on memory has grown by {found.grown / 2**20:.0f} MiB"
    )
    if found.planned_device is not None and found.taken_device is not None:
        print(
            f"  on the GPU: planned {found.planned_device / 2**20:.0f} MiB, taken "
            f"{found.taken_device / 2**20:.0f} MiB"
        )


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; a device that is not here is an error before any file is written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter with llama.cpp")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--models", type=Path, default=Path("build/models"), metavar="FOLDER")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print all numbers at the end")
    options = parser.parse_args(arguments)
    try:
        choose_device(options.device)
    except ConfigError as error:
        parser.error(str(error))
    return options


def main() -> None:
    options = parsed()
    on_gpu = options.device != "cpu"
    prompt, generated = (4096, 128) if on_gpu else (512, 16)
    setting = Setting(options.device, options.threads, options.rounds, prompt, generated)
    chosen = {
        name: models.synthetic(name, MIX, options.models) for name in RECENT if options.only in name
    }
    tests: list[Test] = []
    for hybrid, pure in PAIRS.items():
        if {hybrid, pure} <= chosen.keys():
            tests += beside_attention((chosen[hybrid], chosen[pure]), setting)
    for name in [name for name in chosen if name not in PAIRS.values()]:
        with ExitStack() as stack:  # a model's memory is free before the next one is opened
            peer = None
            if options.peer:
                peer = stack.enter_context(Peer(options.peer, gpu_layers=-1 if on_gpu else 0))
            tests += race(chosen[name], peer, setting)
    costs = [cost(path, setting) for path in chosen.values()]
    if options.json:
        print(json.dumps({"tests": list(map(asdict, tests)), "costs": list(map(asdict, costs))}))


if __name__ == "__main__":
    main()
