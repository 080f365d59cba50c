"""Many mixed requests against one engine: what comes, goes, fails and is cancelled.

    python tests/soak.py [MODEL] [--requests 10000] [--seed 0]

Texts, beams, scores and forks from several threads and an event loop, a part of them cancelled,
failing or dropped, on a cache that is too small for all of them. Prints the memory and the blocks
of the cache as it goes. At the end every block must be free and the memory no more than after
the first tenth, or it exits with 1.
"""

import argparse
import asyncio
import random
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from holding import PATIENCE
from ingot import LLM, Grammar
from ingot.errors import CacheFullError, IngotError, QueueFullError, RequestCancelledError
from tiny_llama import write_tiny_llama

THREADS = 6
_PAGE = 4096
_SLACK = 12 << 20  # bytes that the allocator may keep


def resident() -> int:
    """Bytes of this process in memory that are not a file's."""
    _, total, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(total) - int(shared)) * _PAGE


def fail(_: Any, __: Any) -> None:
    """A processor with an error."""
    raise RuntimeError("on purpose")


@dataclass
class Soak:
    """One run."""

    llm: LLM
    requests: int
    seed: int
    kinds: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    _next: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Make all the requests."""
        workers = [threading.Thread(target=self._work) for _ in range(THREADS)]
        workers.append(threading.Thread(target=lambda: asyncio.run(self._work_async())))
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _take(self) -> random.Random | None:
        """The dice of the next request; each request is the same in every run."""
        with self._lock:
            if self._next == self.requests:
                return None
            self._next += 1
            number = self._next
        if number % max(1, self.requests // 10) == 0:
            self.report(number)
        return random.Random(f"{self.seed} {number}")

    def report(self, number: int) -> None:
        """One line of how things are."""
        stats = self.llm.stats
        print(
            f"{number:6} requests, {resident() >> 20:5} MiB, blocks {stats.blocks_held} held "
            f"{stats.blocks_kept} kept of {stats.blocks}, {stats.preemptions} preemptions, "
            f"{stats.reused_tokens} tokens reused",
            flush=True,
        )

    def _work(self) -> None:
        while (dice := self._take()) is not None:
            self._expect(dice, self._one)

    async def _work_async(self) -> None:
        while (dice := self._take()) is not None:
            prompt, fields = self._asked(dice)
            request = self.llm.astream(prompt, **fields)
            try:
                if dice.random() < 0.3:
                    await asyncio.wait_for(_first(request), PATIENCE)
                    request.cancel()
                else:
                    await asyncio.wait_for(request, PATIENCE)
                self.kinds["async"] += 1
            except IngotError as error:
                self._note(error)

    def _expect(self, dice: random.Random, action: Any) -> None:
        try:
            action(dice)
        except IngotError as error:
            self._note(error)

    def _note(self, error: IngotError) -> None:
        """Errors that are asked for are counted; others are what this program looks for."""
        self.kinds[type(error).__name__] += 1
        wanted = "on purpose" in str(error.__cause__) or isinstance(
            error, QueueFullError | RequestCancelledError | CacheFullError
        )
        if not wanted:
            self.errors.append(f"{type(error).__name__}: {error}")

    def _asked(self, dice: random.Random) -> tuple[list[int], dict[str, Any]]:
        size = self.llm.graph.vocabulary_size
        shared = [dice.randrange(4)] * 50
        own = [dice.randrange(size) for _ in range(dice.randrange(1, 60))]
        fields: dict[str, Any] = {
            "max_tokens": dice.randrange(1, 40),
            "seed": dice.randrange(1000),
            "ignore_eos": True,
        }
        if dice.random() < 0.1:
            fields["processors"] = [fail]
        if dice.random() < 0.05:
            del fields["ignore_eos"]
            fields["grammar"] = Grammar.regex("[a-z]{1,9}")
        return [*shared, *own], fields

    def _one(self, dice: random.Random) -> None:
        prompt, fields = self._asked(dice)
        kind = dice.choices(
            ["text", "cancel", "drop", "fork", "score", "beams", "guided"], [50, 15, 10, 8, 8, 4, 5]
        )[0]
        self.kinds[kind] += 1
        match kind:
            case "text":
                self.llm.generate(prompt, **fields)
            case "cancel":
                request = self.llm.stream(prompt, **fields)
                next(request, None)
                request.cancel()
            case "drop":
                self.llm.stream(prompt, **fields)
            case "fork":
                request = self.llm.stream(prompt, **fields)
                next(request, None)
                for fork in self.llm.fork(request, 2):
                    fork.result()
                request.result()
            case "score":
                self.llm.score(prompt)
            case "beams":
                self.llm.beam_search(prompt, 3, max_tokens=8)
            case "guided":
                self.llm.generate(prompt, negative_prompt=prompt[:20], cfg_scale=1.5, **fields)


async def _first(request: Any) -> None:
    async for _ in request:
        return


def soak(path: Path, requests: int, seed: int = 0) -> tuple[Soak, list[str]]:
    """Run it: what was done, and everything that was wrong."""
    with LLM(path, threads=1, context=256, cache_tokens=768, max_queue=64) as llm:
        warm = Soak(llm, requests // 10, seed + 1)
        warm.run()
        before = resident()
        run = Soak(llm, requests, seed)
        run.run()
        wrong = [*warm.errors, *run.errors]
        llm.score([1])  # after which everything before it has been filed
        llm.engine.clear_cache()
        stats = llm.stats
        run.report(requests)
        if stats.blocks_held or stats.blocks_kept or stats.running or stats.waiting:
            wrong.append(f"something was not given back: {stats}")
        grown = resident() - before
        if grown > _SLACK:
            wrong.append(f"memory grew by {grown >> 20} MiB")
    return run, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, nargs="?", help="default: a tiny one made here")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        model = options.model or write_tiny_llama(Path(folder) / "tiny.gguf")
        run, wrong = soak(model, options.requests, options.seed)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(run.kinds.items())))
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
