"""What Ray costs: the same streams from `ingot serve` and from `ingot serve --ray`, in turns.

    python benchmarks/bench_ray.py [--model FILE] [--rounds 15]   # on an idle machine: 3 minutes

Both servers run all the time, with one replica and as many threads; only one of them works. It
prints the tokens per second of 8 streams, and the time to the first token: of the 8 streams, which
come at once, and of a single one. Every difference is the median over the rounds of what the two
servers did right after each other.
"""

import argparse
import selectors
import socket
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import models
from bench_server import Address, asked, request, serving

STREAMS, TOKENS = 8, 128
MARK = b'"content":"'  # the first event with text


@dataclass(frozen=True)
class Seen:
    """What clients saw of some streams."""

    tokens_per_second: float
    first_milliseconds: float  # the median of the streams


def streams(address: Address, count: int, tokens: int, seed: int) -> Seen:
    """Streams that begin at once, read with as little work as can be."""
    firsts: list[float] = []
    started = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for number in range(count):
            stream = socket.create_connection((address.host, address.port))
            stream.sendall(request(asked(seed + number, tokens)))
            selector.register(stream, selectors.EVENT_READ, bytearray())
        while selector.get_map():
            for key, _ in selector.select():
                received, open_stream = key.data, key.fileobj
                assert isinstance(open_stream, socket.socket)
                data = open_stream.recv(1 << 16)
                had_text = MARK in received
                received += data
                if not had_text and MARK in received:
                    firsts.append(1000 * (time.perf_counter() - started))
                if not data:
                    assert received.startswith(b"HTTP/1.1 200"), received[:200]
                    assert b"data: [DONE]" in received[-100:], received[-200:]
                    selector.unregister(open_stream)
                    open_stream.close()
    seconds = time.perf_counter() - started
    return Seen(count * tokens / seconds, statistics.median(firsts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a GGUF file (default: SmolLM2)")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    model = given.model or models.smollm2()
    with serving(model) as plain, serving(model, "--ray") as on_ray:
        both = {"plain": plain, "on Ray": on_ray}
        many: dict[str, list[Seen]] = {name: [] for name in both}
        single: dict[str, list[float]] = {name: [] for name in both}
        for round in range(given.rounds + 1):
            names = list(both) if round % 2 == 0 else list(both)[::-1]
            seed = 100 * round  # both servers get the same requests
            found = {name: streams(both[name], STREAMS, TOKENS, seed) for name in names}
            alone = {
                name: [streams(both[name], 1, 4, seed + number) for number in range(3)]
                for name in names
            }
            if round == 0:
                continue  # both are warm now
            for name in both:
                many[name].append(found[name])
                single[name].append(
                    statistics.median(seen.first_milliseconds for seen in alone[name])
                )
    for name in both:
        print(
            f"{name:<7} {STREAMS} streams: "
            f"{statistics.median(seen.tokens_per_second for seen in many[name]):.0f} tokens/s, "
            f"first token {statistics.median(seen.first_milliseconds for seen in many[name]):.1f} "
            f"ms; one stream: first token {statistics.median(single[name]):.1f} ms"
        )
    pairs = list(zip(many["plain"], many["on Ray"], strict=True))
    slower = [100 * (1 - ray.tokens_per_second / alone.tokens_per_second) for alone, ray in pairs]
    later = [ray.first_milliseconds - alone.first_milliseconds for alone, ray in pairs]
    one = [ray - alone for alone, ray in zip(single["plain"], single["on Ray"], strict=True)]
    print(
        f"Ray costs {statistics.median(slower):.1f}% of the tokens per second "
        f"(quartiles {quartiles(slower)}), "
        f"{statistics.median(later):.1f} ms of the first token of {STREAMS} streams "
        f"(quartiles {quartiles(later)}), {statistics.median(one):.1f} ms of that of one stream"
    )


def quartiles(values: list[float]) -> str:
    low, _, high = statistics.quantiles(values, n=4)
    return f"{low:.1f} to {high:.1f}"


if __name__ == "__main__":
    main()
