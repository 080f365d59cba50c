"""Opens hostile model files as a user would, and checks that each is used or refused.

    python -m fuzz.run_models --count 24000 [--seed 1] [--first N]

Every file is opened, tokenized with, its chat template rendered, inspected, and run for two
tokens, in a worker process with a limit on memory. What the library may answer is a result or
one of Ingot's errors (`IngotError`). A failure is anything else: an exception of another kind, a
signal, a file that takes longer than `FILE_SECONDS`, memory that grows by more than
`MOST_GROWTH_MIB` for one file. Files that failed are kept in build/fuzz/models; `--first N
--count 1` looks at one again.
"""

import argparse
import io
import json
import resource
import select
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fuzz.hostile_models import make_model
from fuzz.run import overwrite, peak_mib
from ingot.api import LLM
from ingot.cli.inspect import command
from ingot.errors import IngotError
from ingot.gguf import GgufLoader
from ingot.tokenizer import Tokenizer
from ingot.tokenizer.chat_template import ChatTemplate

FILE_SECONDS = 120  # a file takes some hundredths; the machine may do other things
MOST_GROWTH_MIB = 512  # for one file; none is larger than 2 MiB
ADDRESS_SPACE = 6 << 30  # of a worker
FOLDER = Path("build/fuzz/models")
_TEXT = "ab <s>abc</s> \u2581a naïve <|im_end|>"
_MESSAGES = [{"role": "user", "content": "ab"}]


@dataclass(frozen=True)
class Outcome:
    """What became of a file: `used`, `refused` with an error of ours, or `failed`."""

    number: int
    architecture: str
    kind: str
    detail: str = ""


def stages(path: Path, *, views: bool = True, **options: Any) -> Iterator[Callable[[], object]]:
    """What a user does with a file, one after the other; `options` are those of `LLM`.

    `views`: also the tables for people, which take longer than all the rest.
    """

    def inspect(**options: Any) -> None:
        with redirect_stdout(io.StringIO()):
            command(str(path), **options)

    def look_at_a_tensor() -> None:
        with GgufLoader(path) as loader:
            names = list(loader.tensors)
        inspect(tensor=names[len(names) // 2] if names else "none")

    def tokenize() -> None:
        tokenizer = Tokenizer.from_gguf(path)
        tokenizer.decode(tokenizer.encode(_TEXT, parse_special=True))
        tokenizer.decode(range(tokenizer.vocab_size))

    def render() -> None:
        with GgufLoader(path) as loader:
            ChatTemplate.from_metadata(loader.metadata).render(_MESSAGES)

    def run() -> None:
        with LLM(path, threads=1, **options) as llm:
            if llm.graph.hidden or llm.graph.scores:
                llm.embed([[1, 2, 3]])
                return
            short = {"max_tokens": 2, "temperature": 0}
            calls = [
                partial(llm.generate, [1, 2, 3], **short),
                partial(llm.chat, _MESSAGES, **short),
                partial(llm.generate, [1, 2, 3], schema={"type": "boolean"}, **short),
            ]
            errors = [error for call in calls if (error := refusal(call)) is not None]
            if errors:
                raise errors[0]

    yield partial(inspect, json=True)
    yield partial(inspect, graph=True, json=True)
    if views:
        yield partial(inspect, tensors=True)
        yield partial(inspect, graph=True)
        yield look_at_a_tensor
    yield from (tokenize, render, run)


def refusal(call: Callable[[], object]) -> IngotError | None:
    """The error with which a call refuses, if it does."""
    try:
        call()
    except IngotError as error:
        return error
    return None


def options_of(number: int) -> dict[str, Any]:
    """How a file is opened."""
    return {
        "context": 32 if number % 2 else None,
        "kv_type": "q8_0" if number % 16 == 0 else "f16",  # which few of the heads can be
        "weights": ("read", "repack", "map", "auto", "map")[number % 5],
    }


def examine(seed: int, number: int, path: Path) -> Outcome:
    """Make a file and use it in every way."""
    architecture, data = make_model(seed, number)
    overwrite(path, data)
    before = peak_mib()
    refused = ""
    for stage in stages(path, views=number % 8 == 0, **options_of(number)):
        try:
            stage()
        except IngotError as error:
            refused = refused or type(error).__name__
        except Exception:  # whatever it is, it is what we look for
            return Outcome(number, architecture, "failed", traceback.format_exc())
    if peak_mib() - before > MOST_GROWTH_MIB:
        detail = f"memory grew by {peak_mib() - before:.0f} MiB"
        return Outcome(number, architecture, "failed", detail)
    return Outcome(number, architecture, "refused" if refused else "used", refused)


def work(seed: int, path: Path) -> None:
    """A worker: numbers come in, outcomes go out, a line each."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    warnings.simplefilter("ignore")  # of files that say odd things there are many
    for line in sys.stdin:
        outcome = examine(seed, int(line), path)
        print(json.dumps(outcome.__dict__), flush=True)


class Worker:
    """A process that examines files, replaced by another one when a file ends it."""

    def __init__(self, seed: int, path: Path) -> None:
        self._seed = seed
        self._path = path
        self._process: subprocess.Popen[str] | None = None

    def examine(self, number: int) -> Outcome:
        """The outcome of a file, also of one that kills or stops the process."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], FILE_SECONDS)
        line = process.stdout.readline() if ready else ""
        if line:
            return Outcome(**json.loads(line))
        architecture, _ = make_model(self._seed, number)
        self.close()
        detail = f"it took more than {FILE_SECONDS} s"
        if ready:
            detail = f"it ended with {process.returncode}"
        return Outcome(number, architecture, "failed", detail)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with self._process as process:  # waits for it, and closes the pipes
                process.kill()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "fuzz.run_models", "--work", str(self._path)]
        return subprocess.Popen(
            [*command, "--seed", str(self._seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )


def examine_all(
    count: int, seed: int, folder: Path, first: int = 0, tell: Callable[[str], None] = print
) -> list[Outcome]:
    """Examine files `first` to `first + count`; those that fail are kept in the folder."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    worker = Worker(seed, folder / "last.gguf")
    outcomes = []
    try:
        for number in range(first, first + count):
            outcome = worker.examine(number)
            outcomes.append(outcome)
            if outcome.kind == "failed":
                (folder / f"{seed}-{number}.gguf").write_bytes(make_model(seed, number)[1])
                tell(f"file {number} ({outcome.architecture}) failed: {outcome.detail}")
            elif len(outcomes) % 1000 == 0:
                tell(f"{len(outcomes)} files")
    finally:
        worker.close()
    return outcomes


def table(outcomes: list[Outcome]) -> str:
    """How many files of each architecture were used, refused, and failed."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        counts[outcome.architecture][outcome.kind] += 1
    total = Counter(outcome.kind for outcome in outcomes)
    rows = [*sorted(counts.items()), ("all", total)]
    kinds = ("used", "refused", "failed")
    lines = [f"{'architecture':14}" + "".join(f"{kind:>9}" for kind in kinds)]
    lines += [f"{name:14}" + "".join(f"{count[kind]:9}" for kind in kinds) for name, count in rows]
    errors = Counter(outcome.detail for outcome in outcomes if outcome.kind == "refused")
    lines += [f"{count:9} refused with {name}" for name, count in errors.most_common()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=24_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work is not None:
        work(arguments.seed, arguments.work)
        return
    start = time.perf_counter()
    outcomes = examine_all(arguments.count, arguments.seed, FOLDER, arguments.first)
    print(table(outcomes))
    print(f"{len(outcomes)} files in {time.perf_counter() - start:.0f} s (seed {arguments.seed})")
    failed = sum(outcome.kind == "failed" for outcome in outcomes)
    if failed:
        sys.exit(f"{failed} files failed; they are in {FOLDER}")


if __name__ == "__main__":
    main()
