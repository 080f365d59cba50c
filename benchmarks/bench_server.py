"""The cost of HTTP, and the server under many clients.

    python benchmarks/bench_server.py [--model FILE] [--rounds 5]

Three parts:
overhead    8 streams over HTTP and 8 streams of the engine in a separate process, in turns: the
            median ratio of their tokens per second. Prompts, tokens and options are the same; the
            HTTP client only reads bytes.
crowd       200 streaming clients at once, with 32 slots and a queue of 100: how many were served,
            how many got a 429, the server's memory after each wave, and its growth over the later
            waves.
leaving     64 streams; half of the clients disconnect at random moments: how long their slots
            stayed taken, compared with the length of a step.
"""

import argparse
import asyncio
import json
import random
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import models

_STREAMS, _TOKENS = 8, 128
_WAVES, _WARM_WAVES = 12, 4  # of clients; the cache and the heap are used once after the first few
_PROMPT = "Tell me a story about a lighthouse, a storm and a cat."
_SERVE = "from ingot.cli import main; main()"

# Runs streams in the engine alone and says how long they took; a line on stdin begins a round.
_ENGINE = """
import asyncio, json, sys, time
from ingot import LLM
path, streams, tokens, prompt = json.loads(sys.argv[1])
llm = LLM(path)
async def one(number):
    ask = {"temperature": 0.8, "seed": number, "max_tokens": tokens, "ignore_eos": True}
    async for _ in llm.astream(llm.chat_prompt([{"role": "user", "content": prompt}]), **ask):
        pass
async def all_of_them():
    await asyncio.gather(*(one(number) for number in range(streams)))
print("ready", flush=True)
for _ in sys.stdin:
    started = time.perf_counter()
    asyncio.run(all_of_them())
    print(time.perf_counter() - started, flush=True)
"""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    process: int

    def get(self, path: str) -> bytes:
        """What an endpoint says."""
        with urlopen(f"http://{self.host}:{self.port}{path}") as answer:
            content: bytes = answer.read()
        return content

    @property
    def memory(self) -> int:
        """Memory that the process has written, in bytes.

        Pages of the mapped model, which are private as long as nobody else has it open, are not.
        """
        rollup = Path(f"/proc/{self.process}/smaps_rollup").read_text(encoding="ascii")
        lines = (line.split() for line in rollup.splitlines()[1:])
        return sum(int(line[1]) << 10 for line in lines if line[0] == "Private_Dirty:")


@contextmanager
def serving(model: Path, *options: str) -> Iterator[Address]:
    """A server on a model."""
    command = [sys.executable, "-c", _SERVE, "serve", "-m", str(model), "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("serving "))
        host, port = line.rsplit("http://", 1)[1].split(":")
        log = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        try:
            yield Address(host, int(port), process.pid)
        finally:
            process.terminate()
            process.wait()
            log.wait()


def request(body: dict[str, object]) -> bytes:
    """A chat request as bytes."""
    content = json.dumps(body).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def asked(number: int, tokens: int = _TOKENS) -> dict[str, object]:
    """A stream of a chat."""
    return {
        "messages": [{"role": "user", "content": _PROMPT}],
        "stream": True,
        "temperature": 0.8,
        "seed": number,
        "max_tokens": tokens,
        "ignore_eos": True,
    }


async def read_stream(address: Address, number: int, tokens: int = _TOKENS) -> tuple[int, int]:
    """The status of an answer, and how many chunks it had."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request(asked(number, tokens)))
    chunks, status, rest = 0, 0, b""
    while data := await reader.read(1 << 16):
        status = status or int(data[9:12])
        whole = rest + data
        chunks += whole.count(b"\ndata: ")
        rest = whole[-6:]
        chunks -= rest.count(b"\ndata: ")
    writer.close()
    return status, chunks


def streams_seconds(address: Address) -> float:
    """How long the streams take over HTTP, read with as little work as can be."""
    started = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for number in range(_STREAMS):
            stream = socket.create_connection((address.host, address.port))
            stream.sendall(request(asked(number)))
            selector.register(stream, selectors.EVENT_READ, bytearray())
        while selector.get_map():
            for key, _ in selector.select():
                received, open_stream = key.data, key.fileobj
                assert isinstance(open_stream, socket.socket)
                data = open_stream.recv(1 << 16)
                received += data
                if not data:
                    assert received.startswith(b"HTTP/1.1 200"), received[:200]
                    assert b"data: [DONE]" in received[-100:], received[-200:]
                    selector.unregister(open_stream)
                    open_stream.close()
    return time.perf_counter() - started


def measure_overhead(model: Path, rounds: int) -> None:
    """Print the share of the time that HTTP takes."""
    argument = json.dumps([str(model), _STREAMS, _TOKENS, _PROMPT])
    command = [sys.executable, "-c", _ENGINE, argument]
    pipe = subprocess.PIPE
    with (
        serving(model) as address,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as engine,
    ):
        begin, seconds = engine.stdin, engine.stdout
        assert begin is not None
        assert seconds is not None
        seconds.readline()  # it is ready

        def alone() -> float:
            begin.write("go\n")
            begin.flush()
            return float(seconds.readline())

        alone(), streams_seconds(address)  # both are warm now
        ratios, rates = [], []
        for round in range(rounds):
            first_engine = round % 2 == 0
            engine_seconds = alone() if first_engine else 0.0
            http_seconds = streams_seconds(address)
            engine_seconds = engine_seconds or alone()
            ratios.append(http_seconds / engine_seconds)
            rates.append(_STREAMS * _TOKENS / http_seconds)
        begin.close()
    print(
        f"overhead   {_STREAMS} streams: {statistics.median(rates):.0f} t/s over HTTP, "
        f"{100 * (statistics.median(ratios) - 1):+.1f}% of the engine's time alone "
        f"(median of {rounds}; from {100 * (min(ratios) - 1):+.1f}% to "
        f"{100 * (max(ratios) - 1):+.1f}%)"
    )


async def crowd(address: Address, clients: int) -> tuple[int, int, int]:
    """How many of the clients were served, refused, and neither."""
    results = await asyncio.gather(
        *(read_stream(address, number, 8) for number in range(clients)), return_exceptions=True
    )
    statuses = [result[0] if isinstance(result, tuple) else 0 for result in results]
    served, refused = statuses.count(200), statuses.count(429)
    return served, refused, clients - served - refused


def measure_crowd(model: Path) -> None:
    """Print what becomes of many clients at once, and of the server's memory."""
    memory: list[float] = []
    with serving(model, "--queue", "100", "--context", "1024") as address:
        for wave in range(_WAVES):
            started = time.perf_counter()
            served, refused, others = asyncio.run(crowd(address, 200))
            memory.append(address.memory / 2**20)
            print(
                f"crowd      wave {wave + 1}: 200 clients: {served} served, {refused} got a 429, "
                f"{others} other errors, {time.perf_counter() - started:.1f} s, "
                f"{memory[-1]:.1f} MiB"
            )
    later = memory[_WARM_WAVES - 1 :]
    print(
        f"crowd      from wave {_WARM_WAVES} to {_WAVES}: {later[-1] - later[0]:+.1f} MiB "
        f"({min(later):.1f} to {max(later):.1f})"
    )


async def leave(address: Address, number: int, generator: random.Random) -> None:
    """Ask for a long text and go away in the middle of it."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request(asked(number, 2000)))
    await reader.read(1)
    await asyncio.sleep(generator.uniform(0.1, 2.0))
    writer.transport.abort()


async def leaving(address: Address) -> tuple[float, float]:
    """Seconds until the places of those that left were free, and of a step meanwhile."""
    generator = random.Random(5)
    staying = [asyncio.create_task(read_stream(address, n, 400)) for n in range(16)]
    await asyncio.gather(*(leave(address, n, generator) for n in range(16)))
    left = time.perf_counter()
    before = status(address)
    while (now := status(address))["running"] > 16:
        await asyncio.sleep(0.001)
    free = time.perf_counter() - left
    while (now := status(address))["steps"] < before["steps"] + 10:
        await asyncio.sleep(0.01)
    step = (time.perf_counter() - left) / (now["steps"] - before["steps"])
    await asyncio.gather(*staying)
    return free, step


def status(address: Address) -> dict[str, int]:
    """What the server's model is doing."""
    models_status: list[dict[str, int]] = json.loads(address.get("/api/status"))["models"]
    return models_status[0]


def measure_leaving(model: Path) -> None:
    """Print how soon the places of clients that went away are free."""
    with serving(model) as address:
        free, step = asyncio.run(leaving(address))
        memory = address.memory / 2**20
    print(
        f"leaving    16 of 32 clients went away: their places were free {1e3 * free:.0f} ms after "
        f"the last of them; a step takes {1e3 * step:.0f} ms; {memory:.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a GGUF file (default: SmolLM2)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("overhead", "crowd", "leaving"))
    options = parser.parse_args()
    model = options.model or models.smollm2()
    if options.only in (None, "overhead"):
        measure_overhead(model, options.rounds)
    if options.only in (None, "crowd"):
        measure_crowd(model)
    if options.only in (None, "leaving"):
        measure_leaving(model)


if __name__ == "__main__":
    main()
