"""`ingot serve --device cuda` under streaming clients, from the first second after it is ready.

    python benchmarks/bench_gpu_server.py llama3-8b --clients 1,32,64,128 --lengths 128/128

It writes a file of a real shape with random weights (benchmarks/synthetic.py), starts a server on
it, and has so many clients at once ask for one text each, of a prompt of so many tokens and as many
generated ones; all prompts differ. For each load it prints

tokens/s    generated tokens of all clients, from the first request to the last token
first       seconds to the first token: median, 99th percentile
gap         milliseconds between two tokens of a text: median, 99th percentile, the longest
compiled    kernels that requests had to wait for since the server was ready, and captures: 0 and 0

With `--in-process` prompts of the same kind go to `LLM.stream`, without HTTP: the difference is
what the server costs.

Clients run in separate processes and look only for the beginnings of events, so that 20,000 tokens
per second can be read. A wave at the end repeats the first load: it should not be faster.
"""

import argparse
import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from urllib.request import urlopen

import numpy as np

import models
from ingot import LLM

_SERVE = "from ingot.cli import main; main()"
_CLIENT_PROCESSES = 8
_EVENT = b"data: "
_MIXES = {"gpt-oss-20b": "MXFP4"}
_PATIENCE = 300.0  # seconds without a byte


@dataclass(frozen=True, slots=True)
class Load:
    """Clients at once, tokens of a prompt, tokens generated."""

    clients: int
    prompt: int
    generated: int

    def __str__(self) -> str:
        return f"{self.clients} x {self.prompt}/{self.generated}"


@dataclass(slots=True)
class Stream:
    """What a client has seen: when events came."""

    connection: socket.socket
    times: list[float]
    rest: bytes = b""
    start: bytes = b""

    def read(self) -> bool:
        """Take what has come; False: it was the end."""
        data = self.connection.recv(1 << 18)
        if not data:
            return False
        if len(self.start) < 12:
            self.start += data[:12]
        whole = self.rest + data
        count = whole.count(_EVENT)
        if count:
            self.times.extend([time.perf_counter()] * count)
        self.rest = whole[-len(_EVENT) + 1 :]
        return True


def request(number: int, load: Load, vocabulary: int) -> bytes:
    """A completion of a prompt of its own, as bytes."""
    random = np.random.default_rng(number)
    body = {
        "prompt": random.integers(5, vocabulary, load.prompt).tolist(),
        "stream": True,
        "max_tokens": load.generated,
        "ignore_eos": True,
        "temperature": 0.8,
        "seed": number,
    }
    content = json.dumps(body).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content


def read_streams(
    port: int, numbers: Sequence[int], load: Load, vocabulary: int
) -> list[list[float]]:
    """Times of the request and of every event, for each of some clients."""
    asked = [request(number, load, vocabulary) for number in numbers]
    streams = []
    with selectors.DefaultSelector() as selector:
        for content in asked:
            connection = socket.create_connection(("127.0.0.1", port))
            stream = Stream(connection, [time.perf_counter()])
            connection.sendall(content)
            selector.register(connection, selectors.EVENT_READ, stream)
            streams.append(stream)
        while selector.get_map():
            ready = selector.select(_PATIENCE)
            if not ready:
                raise TimeoutError(f"no byte in {_PATIENCE:.0f} s")
            for key, _ in ready:
                stream = key.data
                if not stream.read():
                    selector.unregister(stream.connection)
                    stream.connection.close()
    for stream in streams:
        if not stream.start.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the server answered {stream.start!r}")
    return [stream.times for stream in streams]


def _work(argument: tuple[int, list[int], Load, int]) -> list[list[float]]:
    return read_streams(*argument)


@dataclass(frozen=True, slots=True)
class Measured:
    """What one load took."""

    rate: float
    first: tuple[float, float]
    gaps: tuple[float, float, float]

    @classmethod
    def of(cls, texts: Sequence[Sequence[float]], load: Load) -> "Measured":
        """From the times of all clients; the last events end a text and have no token."""
        if any(len(times) < 2 for times in texts):
            raise RuntimeError("a text ended without a token: look at the server's log")
        tokens = [times[1 : 1 + load.generated] for times in texts]
        if any(len(times) < load.generated for times in tokens):
            fewest = min(len(times) for times in tokens)
            print(f"  a text has only {fewest} events: tokens came together")
        first = [times[1] - times[0] for times in texts]
        gaps = np.concatenate([np.diff(times) for times in tokens])
        seconds = max(times[-1] for times in tokens) - min(times[0] for times in texts)
        return cls(
            load.clients * load.generated / seconds,
            (float(np.median(first)), float(np.percentile(first, 99))),
            (float(np.median(gaps)), float(np.percentile(gaps, 99)), float(np.max(gaps))),
        )


class Server:
    """A server that is ready."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str) -> str:
        """What an endpoint says."""
        with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    def counters(self) -> dict[str, float]:
        """Its own counters."""
        found: dict[str, float] = {}
        for line in self.get("/metrics").splitlines():
            if line.startswith("ingot_") and "{model=" in line:
                name, value = line.split("{")[0], line.rsplit(" ", 1)[1]
                found[name.removeprefix("ingot_").removesuffix("_total")] = float(value)
        return found


@contextmanager
def serving(model: Path, options: Sequence[str]) -> Iterator[Server]:
    """A server on a model; prints what it says until it is ready. Later lines go to a file."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", _SERVE, "serve", "-m", f"bench={model}", *options]
    command += ["--port", str(port)]
    started = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while line := process.stderr.readline():
            print(f"  {time.perf_counter() - started:5.1f} s  {line.rstrip()}", flush=True)
            if "http://" in line:
                break
        written = model.with_suffix(".log")
        with written.open("wb") as file:
            log = subprocess.Popen(["cat"], stdin=process.stderr, stdout=file)
        try:
            server = Server(port)
            server.get("/health")
            yield server
        except BaseException:
            print("\n".join(written.read_text().splitlines()[-40:]), flush=True)
            raise
        finally:
            process.terminate()
            process.wait()
            log.wait()


def in_process(path: Path, loads: Sequence[Load], options: argparse.Namespace) -> None:
    """Tokens per second of the same texts without a server, the best of two waves."""
    longest = max(load.prompt + load.generated for load in loads)
    most = options.parallel or max(load.clients for load in loads)
    context = max(2 * longest, 512)
    with LLM(
        path,
        device=options.device,
        context=context,
        max_running=most,
        chunk_tokens=options.chunk_tokens,
    ) as llm:
        for load in loads:
            rates = []
            for wave in range(2):
                random = np.random.default_rng(wave)
                shape = load.clients, load.prompt
                prompts = random.integers(5, options.vocabulary, shape).tolist()
                started = time.perf_counter()
                texts = [
                    llm.stream(ids, max_tokens=load.generated, ignore_eos=True, seed=wave)
                    for ids in prompts
                ]
                for text in texts:
                    text.result()
                seconds = time.perf_counter() - started
                rates.append(load.clients * load.generated / seconds)
            print(f"  {load!s:>16}  {max(rates):7.0f} tokens/s in process", flush=True)


def report(name: str, options: argparse.Namespace) -> None:
    """One shape under all loads."""
    path = models.synthetic(name, _MIXES.get(name, "Q4_K_M"), options.folder)
    lengths = [tuple(map(int, pair.split("/"))) for pair in options.lengths.split(",")]
    clients = [int(number) for number in options.clients.split(",")]
    loads = [Load(many, *pair) for pair in lengths for many in clients]
    if options.in_process:
        in_process(path, loads, options)
        return
    longest = max(prompt + generated for prompt, generated in lengths)
    parallel = str(options.parallel or max(clients))
    serve = ["--device", options.device, "--parallel", parallel]
    serve += ["--context", str(max(2 * longest, 512))]
    if options.chunk_tokens:
        serve += ["--chunk-tokens", str(options.chunk_tokens)]
    print(f"{name}: {' '.join(serve)}", flush=True)
    number = 0
    with get_context("spawn").Pool(_CLIENT_PROCESSES) as pool, serving(path, serve) as server:
        for load in [*loads, loads[0]]:
            numbers = list(range(number, number + load.clients))
            number += load.clients
            shares = [numbers[start::_CLIENT_PROCESSES] for start in range(_CLIENT_PROCESSES)]
            work = [(server.port, share, load, options.vocabulary) for share in shares if share]
            texts = [times for found in pool.map(_work, work, 1) for times in found]
            found, counters = Measured.of(texts, load), server.counters()
            print(
                f"  {load!s:>16}  {found.rate:7.0f} tokens/s  first {found.first[0]:6.3f} "
                f"{found.first[1]:6.3f} s  gap {1e3 * found.gaps[0]:6.1f} "
                f"{1e3 * found.gaps[1]:6.1f} {1e3 * found.gaps[2]:7.1f} ms  compiled "
                f"{counters.get('compilations_after_ready', -1):.0f}, captured "
                f"{counters.get('captures_after_ready', -1):.0f}",
                flush=True,
            )
        print(
            f"  at opening: {counters['compilations']:.0f} kernels, "
            f"{counters['captures']:.0f} captures; {counters['steps']:.0f} steps, "
            f"{counters['preemptions']:.0f} preemptions"
        )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="+", help="of benchmarks/synthetic.py")
    parser.add_argument("--clients", default="1,32,64,128,256,512")
    parser.add_argument("--lengths", default="128/128,128/512,1000/1000")
    parser.add_argument("--parallel", type=int, help="of the server; default: the most clients")
    parser.add_argument("--chunk-tokens", type=int, help="default: by what steps take")
    parser.add_argument("--in-process", action="store_true", help="LLM.stream, without a server")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--vocabulary", type=int, default=30000, help="ids of prompts are below")
    parser.add_argument("--folder", type=Path, default=Path("build"))
    options = parser.parse_args()
    for name in options.shapes:
        report(name, options)


if __name__ == "__main__":
    main()
