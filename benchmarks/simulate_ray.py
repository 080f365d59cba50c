"""How a server on Ray grows: replicas with measured step times, and the router that is used there.

    python benchmarks/simulate_ray.py measure steps.json -m MODEL   # on an idle machine: a minute
    python benchmarks/simulate_ray.py check steps.json -m MODEL     # one engine, real and simulated
    python benchmarks/simulate_ray.py grow steps.json --replicas 1000 --users 100000 --fronts 40

`measure` times decode steps by the number of sequences, and prefill by the number of tokens.
`check` runs users on a real engine and on a simulated one and prints both; it ends with an error if
they differ by more than a fifth, because what the simulation says about more replicas is worth as
much as it agrees here. `grow` simulates a cluster: users read, think and go on with their
conversation; `Balance` chooses the replicas, whose caches hold a number of blocks. Each front has a
`Balance` that knows what went through that front. The simulation has no network: add what one hop
costs.
"""

import argparse
import heapq
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median, quantiles
from threading import Thread

from ingot import LLM
from ingot.ray import pace
from ingot.ray.balance import Balance
from simulated_engine import BLOCK, Engine, StepTimes, Turn, measure

# CPU time of a front for one list of tokens: 1.25 s for 4,096 lists on a Zen 4 core.
LIST_SECONDS = 0.0003
AGREEMENT = 0.2


@dataclass(frozen=True)
class Users:
    """People who talk under a few system prompts: tokens and seconds, on average."""

    count: int
    systems: int = 200
    system_tokens: int = 512
    question: int = 64
    answer: int = 128
    think: float = 30.0
    turns: int = 4


@dataclass(frozen=True)
class Outcome:
    """What users saw, and what replicas did."""

    requests: int
    tokens_per_second: float
    first_token_median: float
    first_token_95: float
    hit_rate: float
    largest_share: float  # of the requests of a replica, by the mean
    router_milliseconds: float = 0.0  # real ones, for one request
    front_cores: float = 0.0  # that a front keeps busy


class Talk:
    """The texts of the users, as keys of their blocks, which grow with every turn."""

    def __init__(self, users: Users) -> None:
        self._users = users
        system = range(users.system_tokens // BLOCK)
        self.texts = [
            [hash((user % users.systems, block)) for block in system] for user in range(users.count)
        ]
        self.turns = [0] * users.count

    def ask(self, user: int, now: float) -> Turn:
        """The next request of a user."""
        self._grow(user, "asked", self._users.question)
        keys = tuple(self.texts[user])
        return Turn(user, now, len(keys) * BLOCK, self._users.answer, keys)

    def hear(self, user: int) -> bool:
        """A user gets an answer: whether the user goes on."""
        self.turns[user] += 1
        self._grow(user, "heard", self._users.answer)
        return self.turns[user] < self._users.turns

    def _grow(self, user: int, what: str, tokens: int) -> None:
        made = range(tokens // BLOCK)
        self.texts[user] += [hash((user, what, self.turns[user], block)) for block in made]


class Cluster:
    """Fronts, the engines they route to, and users; a queue by time holds what happens next."""

    def __init__(self, times: StepTimes, users: Users, replicas: int, fronts: int, blocks: int):
        self._users = users
        self._random = Random(0)
        self._talk = Talk(users)
        self.engines = [Engine(times, blocks) for _ in range(replicas)]
        self._numbers = {f"replica {number}": number for number in range(replicas)}
        self._fronts = [Balance() for _ in range(fronts)]
        for front in self._fronts:
            front.keep(set(self._numbers))
        self.got = Counter[int]()
        self.done: list[Turn] = []
        self.routing_seconds = 0.0
        # A time, the order in which it was found, and either a user or an engine with its version.
        self._events: list[tuple[float, int, int, int]] = []
        self._found = 0

    def run(self) -> None:
        """Let all users talk to the end."""
        for user in range(self._users.count):
            self._later(self._random.uniform(0, self._users.think), -1, user)
        while self._events:
            now, _, version, who = heapq.heappop(self._events)
            if version < 0:
                self._ask(now, who)
            elif version == self.engines[who].version:
                self._run_engine(now, who)

    def _later(self, at: float, version: int, who: int) -> None:
        self._found += 1
        heapq.heappush(self._events, (at, self._found, version, who))

    def _ask(self, now: float, user: int) -> None:
        turn = self._talk.ask(user, now)
        front = self._random.choice(self._fronts)
        began = time.perf_counter()
        running = {name: self.engines[number].load for name, number in self._numbers.items()}
        name = front.rank(turn.keys, running)[0]
        front.took(name, turn.keys)
        self.routing_seconds += time.perf_counter() - began
        number = self._numbers[name]
        self.got[number] += 1
        engine = self.engines[number]
        self._end(engine.advance(now))
        engine.take(turn)
        self._plan(number)

    def _run_engine(self, now: float, number: int) -> None:
        engine = self.engines[number]
        reads = any(turn.left for turn in engine.running)
        self._end(engine.step() if reads else engine.advance(now))
        if engine.load:
            self._plan(number)

    def _plan(self, number: int) -> None:
        engine = self.engines[number]
        engine.version += 1
        self._later(engine.plan(), engine.version, number)

    def _end(self, turns: Sequence[Turn]) -> None:
        self.done += turns
        for turn in turns:
            if self._talk.hear(turn.user):
                pause = self._random.expovariate(1 / self._users.think)
                self._later(turn.end + pause, -1, turn.user)


def simulate(
    times: StepTimes, users: Users, replicas: int, blocks: int, fronts: int = 1
) -> Outcome:
    """Let all users talk, and look."""
    cluster = Cluster(times, users, replicas, fronts, blocks)
    cluster.run()
    done, engines = cluster.done, cluster.engines
    span = max(turn.end for turn in done) - min(turn.at for turn in done)
    streams = sum(turn.end - turn.first for turn in done) / span / replicas  # of one, on average
    seconds = pace.pause(streams)
    lists = sum(min(turn.said, pace.AT_ONCE + (turn.end - turn.first) / seconds) for turn in done)
    return outcome(
        done,
        hit_rate=sum(engine.found for engine in engines) / sum(engine.asked for engine in engines),
        largest_share=max(cluster.got.values()) * replicas / len(done),
        router_milliseconds=1000 * cluster.routing_seconds / len(done),
        front_cores=(lists * LIST_SECONDS + cluster.routing_seconds) / span / fronts,
    )


def outcome(done: Sequence[Turn], **more: float) -> Outcome:
    """What users saw."""
    waits = [turn.first - turn.at for turn in done]
    span = max(turn.end for turn in done) - min(turn.at for turn in done)
    return Outcome(
        requests=len(done),
        tokens_per_second=sum(turn.said for turn in done) / span,
        first_token_median=median(waits),
        first_token_95=quantiles(waits, n=20)[-1],
        **more,
    )


def real(llm: LLM, users: Users, seed: int = 0) -> Outcome:
    """The same users, as threads, with a real engine; a block's key makes the ids of its tokens."""
    random = Random(seed)
    talk, done = Talk(users), list[Turn]()
    pauses = [
        [random.uniform(0, users.think)]
        + [random.expovariate(1 / users.think) for _ in range(users.turns - 1)]
        for _ in range(users.count)
    ]
    before = llm.stats

    def speak(user: int) -> None:
        for pause in pauses[user]:
            time.sleep(pause)
            turn = talk.ask(user, time.perf_counter())
            ids = [100 + key % 9000 for key in turn.keys for _ in range(BLOCK)]
            request = llm.stream(ids, max_tokens=users.answer, ignore_eos=True, temperature=0)
            for _ in request:
                turn.first = turn.first or time.perf_counter()
            turn.end = time.perf_counter()
            turn.said = users.answer
            done.append(turn)
            talk.hear(user)

    threads = [Thread(target=speak, args=(user,)) for user in range(users.count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = llm.stats
    read = after.prompt_tokens - before.prompt_tokens  # without those that were reused
    reused = after.reused_tokens - before.reused_tokens
    return outcome(done, hit_rate=reused / (read + reused), largest_share=1.0)


def show(name: str, found: Outcome) -> None:
    """Print what came out."""
    waits = f"{found.first_token_median * 1000:.0f} ms (95%: {found.first_token_95 * 1000:.0f})"
    print(
        f"{name:<10} {found.requests} requests, {found.tokens_per_second:.0f} tokens/s, "
        f"first token {waits}, found in caches {found.hit_rate:.1%}, "
        f"largest share {found.largest_share:.2f}, router {found.router_milliseconds:.2f} ms, "
        f"cores of a front {found.front_cores:.2f}"
    )


def differences(real_one: Outcome, simulated: Outcome) -> dict[str, float]:
    """By which share the simulation is off."""
    names = ("tokens_per_second", "first_token_median", "hit_rate")
    return {
        name: getattr(simulated, name) / max(getattr(real_one, name), 1e-9) - 1 for name in names
    }


def read_times(path: Path) -> StepTimes:
    """What `measure` wrote."""
    found = json.loads(path.read_text())
    decode, prefill = (
        {int(size): float(seconds) for size, seconds in found[name].items()}
        for name in ("decode", "prefill")
    )
    return StepTimes(decode, prefill, found["decode_context"], found["prefill_context"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["measure", "check", "grow"])
    parser.add_argument("times", type=Path, help="the file of measured times")
    parser.add_argument("-m", "--model", default="default")
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--fronts", type=int, default=1)
    parser.add_argument("--users", type=int)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--think", type=float)
    parser.add_argument("--cache-tokens", type=int, default=32768, help="of a replica")
    given = parser.parse_args()
    if given.action == "measure":
        with LLM(given.model) as llm:
            given.times.write_text(json.dumps(asdict(measure(llm)), indent=1))
        return
    times, blocks = read_times(given.times), given.cache_tokens // BLOCK
    if given.action == "grow":
        users = Users(given.users or 100_000, turns=given.turns, think=given.think or 60.0)
        show(f"{given.replicas}", simulate(times, users, given.replicas, blocks, given.fronts))
        return
    users = Users(given.users or 12, systems=3, turns=given.turns, think=given.think or 2.0)
    with LLM(given.model, cache_tokens=given.cache_tokens) as llm:
        found = real(llm, users)
    show("real", found)
    simulated = simulate(times, users, 1, blocks)
    show("simulated", simulated)
    off = differences(found, simulated)
    print(", ".join(f"{name} {share:+.0%}" for name, share in off.items()))
    if max(map(abs, off.values())) > AGREEMENT:
        sys.exit(f"the simulation is off by more than {AGREEMENT:.0%}: do not believe it")


if __name__ == "__main__":
    main()
