"""The host's share of serving: what a token costs beside the device.

    python benchmarks/bench_host.py --clients 64,256,512

The real engine and the real server run with a device that computes nothing: steps end after
`--step-ms`, and tokens are random. Streaming clients run in other processes. For each load it
prints

tokens/s    generated tokens of all clients, from the first request to the last token
step        microseconds of processor time of the step thread for each token
http        the same of the thread that answers clients
gap         milliseconds between two tokens of a text: median, 99th percentile

With `--profile` it prints the functions in which the two threads spend their time.
"""

import argparse
import cProfile
import os
import pstats
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import numpy as np

import models
from bench_gpu_server import Load, Measured, read_streams
from ingot.arrays import Floats, Ints
from ingot.backends.batch import Batch
from ingot.backends.device_sampler import SamplingPlan, StepResult
from ingot.engine import EngineOptions
from ingot.engine.loop import StepLoop
from ingot.engine.model.memory import CacheSize
from ingot.server import ServedModel, ServerOptions, process

_RUNNING = 1024
_CACHE_TOKENS = 1 << 20
_CLIENT_PROCESSES = 2
_VOCABULARY = 49152


class IdleDevice:
    """A backend that samples random tokens; a step takes some seconds, one after the other."""

    max_tokens = 4096

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        self._free = 0.0  # when the device is done with all that was started
        self._random = np.random.default_rng(0)
        self._logits = self._random.standard_normal((_RUNNING, _VOCABULARY), np.float32)

    def forward(self, batch: Batch) -> Floats:
        """Logits of the wanted tokens."""
        self._run().wait()
        return self._logits[: len(batch.outputs)].copy()

    @property
    def prompt_rows(self) -> int:
        """Where the rows of prompts begin."""
        return _RUNNING

    def accepts(self, plan: SamplingPlan) -> bool:
        """Whether the device can follow this plan."""
        return plan.count > 0

    def start(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> "_Step":
        """Run one new token of each of some sequences and sample their next."""
        tokens = self._random.integers(1000, 40000, len(batch.ids), np.int32)
        wanted = sum(plan is None for plan in plans)
        return self._run(tokens, self._logits[:wanted].copy())

    def _run(self, tokens: Ints | None = None, logits: Floats | None = None) -> "_Step":
        self._free = max(self._free, time.perf_counter()) + self._step_seconds
        return _Step(self._free, tokens, logits)


@dataclass(frozen=True, slots=True)
class _Step:
    end: float
    tokens: Ints | None
    logits: Floats | None

    def wait(self) -> None:
        """Until the device is done."""
        left = self.end - time.perf_counter()
        if left > 0:
            time.sleep(left)

    def result(self) -> StepResult:
        """What it found."""
        self.wait()
        assert self.tokens is not None
        assert self.logits is not None
        return StepResult(self.tokens, self.logits)


def idle_placement(step_seconds: float) -> Callable[..., Any]:
    """Stands for `Placed`: a backend on the idle device."""

    class _Placed:
        def __init__(self, *_: object, **__: object) -> None:
            self.backend = self.device_sampler = IdleDevice(step_seconds)
            self.size = CacheSize(_CACHE_TOKENS // 32, 0)
            self.gpu = self.why_cpu = self.gpu_backend = self.cpu_backend = self.give_back = None
            self.decode_sequences = self.default_running = _RUNNING

    return _Placed


class ThreadClock:
    """Processor time of the step thread and of the thread that answers clients."""

    def __init__(self, thread: threading.Thread) -> None:
        self._http = thread

    def read(self) -> tuple[float, float]:
        """Seconds of the step thread, of the other."""
        steps = [each for each in threading.enumerate() if each.name == "ingot"]
        return sum(map(_cpu_seconds, steps)), _cpu_seconds(self._http)


def _cpu_seconds(thread: threading.Thread) -> float:
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def _work(argument: tuple[int, list[int], Load, int]) -> list[list[float]]:
    return read_streams(*argument)


class Bench:
    """A server in this process, and clients in others."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._ready = threading.Event()
        self._port = 0
        self.profiles: list[cProfile.Profile] = []

    def run(self) -> None:
        """Serve in the main thread; a second thread has the clients started."""
        model = ServedModel(
            name="bench",
            path=models.smollm2(),
            engine=EngineOptions(
                context=2048, max_running=_RUNNING, chunk_tokens=1024, max_queue=2048
            ),
        )
        http = threading.current_thread()
        driver = threading.Thread(target=self._drive, args=(http,), daemon=True)
        driver.start()
        with (
            patch(
                "ingot.engine.model.loaded_model.Placed",
                idle_placement(self._options.step_ms / 1e3),
            ),
            patch.object(StepLoop, "_run", self._profiled(StepLoop._run)),
        ):
            served = ServerOptions(models=(model,), port=0, max_connections=2048)
            self._profiled(process.serve)(served, self._said)
        driver.join()

    def _profiled(self, function: Callable[..., None]) -> Callable[..., None]:
        if not self._options.profile:
            return function

        def run(*arguments: object) -> None:
            profile = cProfile.Profile(time.thread_time)
            self.profiles.append(profile)
            profile.runcall(function, *arguments)

        return run

    def _said(self, message: str) -> None:
        if "http://" in message:
            self._port = int(message.rsplit(":", 1)[1])
            self._ready.set()

    def _drive(self, http: threading.Thread) -> None:
        self._ready.wait()
        prompt, generated = map(int, self._options.lengths.split("/"))
        clock, number = ThreadClock(http), 0
        with get_context("spawn").Pool(_CLIENT_PROCESSES) as pool:
            for count in map(int, self._options.clients.split(",")):
                load = Load(count, prompt, generated)
                numbers = list(range(number, number + count))
                number += count
                shares = [numbers[start::_CLIENT_PROCESSES] for start in range(_CLIENT_PROCESSES)]
                before = clock.read()
                work = [(self._port, share, load, 30000) for share in shares if share]
                texts = [times for found in pool.map(_work, work, 1) for times in found]
                found = Measured.of(texts, load)
                step, answers = (
                    1e6 * (after - start) / (count * generated)
                    for start, after in zip(before, clock.read(), strict=True)
                )
                print(
                    f"{load!s:>16}  {found.rate:7.0f} tokens/s  step {step:6.1f} us  http "
                    f"{answers:6.1f} us  first {found.first[0]:6.3f} {found.first[1]:6.3f} s  gap "
                    f"{1e3 * found.gaps[0]:5.1f} {1e3 * found.gaps[1]:5.1f} ms",
                    flush=True,
                )
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", default="64,256,512")
    parser.add_argument("--lengths", default="128/128")
    parser.add_argument("--step-ms", type=float, default=0.0)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    bench = Bench(options)
    bench.run()
    for profile in bench.profiles:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
