"""A simulated engine: step times measured on a real one, slots, chunks of prompts, a prefix cache.

`measure` takes the times. A step costs what its sequences cost in decode, what its prompt tokens
cost in prefill, and what both pay for the tokens they attend to. Nothing here knows routers or
users.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from math import ceil, sqrt
from statistics import median

from ingot import LLM

BATCHES = (1, 2, 4, 8, 16, 32)
PREFILLS = (16, 32, 64, 128, 256, 512)
STEPS = 40
LONG = 1024  # tokens of a long context
CHUNK, WHOLE = 128, 512  # prompt tokens of a step with decode, and without
BLOCK = 32  # tokens that a key of the router stands for here, and a block of the cache
SLOTS = 32


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a step by its sequences and prompt tokens, and for each token in their context."""

    decode: dict[int, float]
    prefill: dict[int, float]
    decode_context: float  # for each token that a sequence attends to
    prefill_context: float  # for each pair of a prompt token and a token before the chunk

    def decoding(self, sequences: int) -> float:
        """Decode without contexts."""
        return _between(self.decode, sequences) if sequences else 0.0

    def reading(self, tokens: int) -> float:
        """Prefill without contexts."""
        return _between(self.prefill, tokens) if tokens else 0.0


def _between(points: dict[int, float], at: int) -> float:
    """A straight line between two measured points; beyond the ends, the nearest two go on."""
    known = sorted(points)
    upper = next((index for index, point in enumerate(known) if point >= at), len(known) - 1)
    upper = max(upper, 1)
    low, high = known[upper - 1], known[upper]
    slope = (points[high] - points[low]) / (high - low)
    return max(points[low] + slope * (at - low), 0.0)


def measure(llm: LLM) -> StepTimes:
    """Time the steps of an engine, alone on its machine."""

    def decode(batch: int, prompt: int) -> float:
        """Seconds of a step; the prompts are read before, so that all sequences decode."""
        prompts = [[number + 5] + [9] * (prompt - 1) for number in range(batch)]
        for ids in prompts:
            llm.generate(ids, max_tokens=1, ignore_eos=True)
        requests = [
            llm.stream(ids, max_tokens=STEPS, ignore_eos=True, temperature=0) for ids in prompts
        ]
        for request in requests:
            request.result()
        return median(each.timings.generation_seconds for each in requests) / (STEPS - 1)

    def prefill(tokens: int, context: int) -> float:
        seconds = []
        for number in range(5):
            begun = [number + 7] + [9] * (context - 1) if context else []
            if begun:
                llm.generate(begun, max_tokens=1, ignore_eos=True)
            ids = begun + [number + 11] + [13] * (tokens - 1)
            request = llm.stream(ids, max_tokens=1, ignore_eos=True, reuse=bool(begun))
            request.result()
            seconds.append(request.timings.prompt_seconds)
        return median(seconds)

    decoded = {batch: decode(batch, 4) for batch in BATCHES}
    read = {tokens: prefill(tokens, 0) for tokens in PREFILLS}
    longer = max(decode(8, LONG) - decoded[8], 0.0)
    later = max(prefill(CHUNK, LONG) - read[CHUNK], 0.0)
    return StepTimes(decoded, read, longer / (8 * LONG), later / (CHUNK * LONG))


@dataclass
class Turn:
    """A request of a user, and what became of it."""

    user: int
    at: float
    prompt: int  # tokens
    answer: int
    keys: tuple[int, ...]
    left: int = 0  # prompt tokens to read
    said: int = 0
    first: float = 0.0  # when the first token came
    end: float = 0.0

    @property
    def context(self) -> int:
        """Tokens in the cache."""
        return self.prompt - self.left + self.said


@dataclass
class Engine:
    """A simulated replica. `clock` is when the step ends that ran last, or that runs."""

    times: StepTimes
    cache_blocks: int
    clock: float = 0.0
    version: int = 0  # of its plan; a request changes it
    running: list[Turn] = field(default_factory=list)
    waiting: deque[Turn] = field(default_factory=deque)
    held: OrderedDict[int, None] = field(default_factory=OrderedDict)
    asked: int = 0
    found: int = 0

    @property
    def load(self) -> int:
        """Requests that it has."""
        return len(self.running) + len(self.waiting)

    def take(self, turn: Turn) -> None:
        """Queue a request; what the cache holds of its prompt need not be read."""
        reused = 0
        for key in turn.keys:
            if key not in self.held:
                break
            reused += 1
        self.asked += len(turn.keys)
        self.found += reused
        turn.left = max(turn.prompt - reused * BLOCK, 1)
        for key in reversed(turn.keys):
            self.held[key] = None
            self.held.move_to_end(key)
        while len(self.held) > self.cache_blocks:
            self.held.popitem(last=False)
        self.clock = max(self.clock, turn.at)
        self.waiting.append(turn)

    def plan(self) -> float:
        """When something changes next: the end of a step with prompts, or the first answer."""
        self._admit()
        if any(turn.left for turn in self.running):
            return self.clock  # the next step begins now
        return self.clock + self._seconds(min(turn.answer - turn.said for turn in self.running))

    def advance(self, now: float) -> list[Turn]:
        """Run all steps that begin before `now`: the requests that they end."""
        ended: list[Turn] = []
        while self.running and self.clock < now:
            if any(turn.left for turn in self.running):
                ended += self.step()
                continue
            steps = min(turn.answer - turn.said for turn in self.running)
            if self.clock + self._seconds(steps) > now:
                steps = min(self._steps_until(now), steps)
            self.clock += self._seconds(steps)
            ended += self._say(self.running, steps)
            self._admit()
        return ended

    def step(self) -> list[Turn]:
        """Run a step with prompts: the requests that it ends."""
        decoding = [turn for turn in self.running if not turn.left]
        context = sum(turn.context for turn in decoding)
        budget = whole = CHUNK if decoding else WHOLE
        pairs = 0
        for turn in self.running:
            if turn.left and budget:
                read = min(turn.left, budget)
                pairs += read * turn.context
                turn.left -= read
                budget -= read
                if not turn.left:
                    decoding.append(turn)
        sequences = sum(1 for turn in decoding if turn.said)
        self.clock += (
            self.times.decoding(sequences)
            + self.times.decode_context * context
            + self.times.reading(whole - budget)
            + self.times.prefill_context * pairs
        )
        ended = self._say(decoding, 1)
        self._admit()
        return ended

    def _admit(self) -> None:
        while self.waiting and len(self.running) < SLOTS:
            self.running.append(self.waiting.popleft())

    def _say(self, turns: list[Turn], steps: int) -> list[Turn]:
        """Give sequences a token in each of some steps that have just ended."""
        ended = []
        for turn in turns:
            turn.said += steps
            turn.first = turn.first or self.clock
            if turn.said == turn.answer:
                turn.end = self.clock
                ended.append(turn)
        if ended:
            self.running = [turn for turn in self.running if turn.said < turn.answer]
        return ended

    def _seconds(self, steps: int) -> float:
        """The time of some steps of decode."""
        base, growth = self._rates()
        return steps * base + growth * steps * (steps - 1) / 2

    def _steps_until(self, now: float) -> int:
        """How many steps of decode begin before a time."""
        base, growth = self._rates()
        span = now - self.clock
        if growth <= 0:
            return max(ceil(span / base), 1)
        half = base - growth / 2
        return max(ceil((sqrt(half * half + 2 * growth * span) - half) / growth), 1)

    def _rates(self) -> tuple[float, float]:
        """Seconds of the next step of decode, and how much longer each further one takes."""
        count = len(self.running)
        context = sum(turn.context for turn in self.running)
        slope = self.times.decode_context
        return self.times.decoding(count) + slope * context, slope * count
