"""TextTask: one text, token by token.

In: the request, and the outcome of each step. Out: tokens to run next, and pieces of text to a
channel.

With guidance a second sequence runs beside the first. Tokens that a grammar forces and tokens that
were guessed (speculation/) run in one step with the one before. The token mask of a grammar is
computed in the background while the model runs.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from ingot.arrays import Floats, Ints, Logits
from ingot.backends.device_sampler import SamplingPlan
from ingot.engine.adapters import AdapterUse
from ingot.engine.channel import Channel, Progress
from ingot.engine.options import RequestSpeculation
from ingot.engine.request import Completion, RequestState, Timings
from ingot.engine.sequence import TokenSequence, begin_text
from ingot.engine.speculation import Guesser
from ingot.engine.stats import Counters
from ingot.engine.task import Outcome, Task, TokenWanted, joined
from ingot.engine.transcript import Transcript
from ingot.errors import ContextLengthError
from ingot.sampling import ChainBuilder, FinishReason, SampledToken, SamplingParams, guide
from ingot.sampling.plan import require_token, sampling_plan
from ingot.tokenizer import Tokenizer

if TYPE_CHECKING:
    from concurrent.futures import Future

_log = logging.getLogger("ingot.engine")
_NO_ROWS: Logits = np.empty((0, 0), np.float32)


class Overflow(StrEnum):
    """What happens to a text that fills the context."""

    ERROR = "error"  # it fails with ContextLengthError
    STOP = "stop"  # it ends with the finish reason "context"
    SHIFT = "shift"  # the first `keep` tokens and the newer half of the rest are read again


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for."""

    prompt: Ints
    params: SamplingParams
    negative: Ints | None = None  # the prompt that guidance leads away from
    cfg_scale: float = 1.0
    heal: bool = False
    overflow: Overflow = Overflow.ERROR
    keep: int = 0  # tokens that a shift leaves at the front
    reuse: bool = True  # begin with what the cache holds of the prompt
    written: tuple[SampledToken, ...] = ()  # tokens of the text that exist already
    parse: Callable[[str], Any] | None = None  # from the whole text to `Completion.parsed`
    adapter: AdapterUse | None = None
    priority: int = 0  # lower values are admitted first
    speculation: RequestSpeculation = "auto"


@dataclass(frozen=True, slots=True)
class TextTools:
    """What the texts of an engine share."""

    chains: ChainBuilder
    tokenizer: Tokenizer
    context: int  # tokens
    start_token: int | None  # what is decoded first, if an encoder reads prompts
    counters: Counters
    in_background: "Callable[[Callable[[], None]], Future[None]]"


@dataclass(slots=True)
class Clock:
    """When a request arrived, began, could sample its first token, and sampled its last."""

    came: float = field(default_factory=time.perf_counter)
    began: float | None = None
    first: float | None = None
    last: float | None = None
    steps: int = 0


class TextTask(Task):
    """Writes a text to its channel."""

    def __init__(self, asked: Asked, tools: TextTools, guesser: Guesser | None = None) -> None:
        self.asked = asked
        self.channel: Channel[Completion] = Channel()
        self.priority = asked.priority
        self.prompt = asked.prompt
        begun = b""
        if asked.heal and len(self.prompt) > 1:
            begun = tools.chains.begun_by(int(self.prompt[-1]))
            self.prompt = self.prompt[:-1] if begun else self.prompt
        self.transcript = Transcript(
            asked.params, self.prompt, tools.chains, tools.tokenizer, begun
        )
        for token in asked.written:
            self.transcript.push(token)
        texts = [self.prompt, *([] if asked.negative is None else [asked.negative])]
        self.sequences = [
            begin_text(
                text,
                tools.start_token,
                reuse=asked.reuse,
                adapter=asked.adapter,
                reasoning=tools.tokenizer.reasoning_ids,
            )
            for text in texts
        ]
        for sequence in self.sequences:
            sequence.extend(each.token for each in asked.written)
        self._tools = tools
        self._state = RequestState.QUEUED
        self._guesser = guesser
        self._guessed: list[int] = []  # the last tokens of the sequence, to be verified
        self._tried = self._right = 0  # tokens of all guesses, and those that were right
        self._guess_rows = _NO_ROWS  # logits after each of them, once they have run
        self._rows: dict[int, list[Logits]] = {}  # of each sequence, until all have run
        self._mask: Future[None] | None = None  # under way while the model runs
        self._clock = Clock()
        self._reused = 0
        if not self.transcript.is_open and asked.written:
            self._finish()

    @property
    def state(self) -> RequestState:
        """Its state, if it has not ended."""
        return self._state if self.sequences[0].cached else RequestState.QUEUED

    @property
    def seed(self) -> int:
        """The seed of the sampler, given or random."""
        return self.transcript.chain.seed

    @property
    def timings(self) -> Timings:
        """Tokens and seconds so far."""
        clock = self._clock
        return Timings(
            prompt_tokens=len(self.prompt),
            prompt_seconds=clock.first - clock.began if clock.began and clock.first else 0.0,
            generated_tokens=len(self.transcript.sampled),
            steps=clock.steps,
            generation_seconds=clock.last - clock.first if clock.first and clock.last else 0.0,
            queue_seconds=(clock.began or time.perf_counter()) - clock.came,
            reused_tokens=self._reused,
            guessed_tokens=self._tried,
            accepted_tokens=self._right,
        )

    def begin(self) -> None:
        """Start the token mask of a grammar; report the first progress."""
        if self.asked.params.grammar is not None:
            self._mask = self._tools.in_background(self.transcript.chain.prepare)
        if self._clock.began is None:
            self._clock.began = time.perf_counter()
            self._state = RequestState.PROMPT
            cached = self.sequences[0].cached
            self._reused = cached.reused if cached else 0
            self._report(self._reused)

    def sampling_plan(self, ahead: int = 0) -> SamplingPlan | None:
        """How a device may sample the next token, or the one `ahead` tokens later."""
        if self._guessed or len(self.sequences) > 1 or (ahead and not self._continues(ahead)):
            return None
        return sampling_plan(self.transcript.sampler, ahead)

    def see_hidden(self, sequence: TokenSequence, start: int, hidden: Floats) -> None:
        """Pass the hidden states on to what guesses."""
        if self._guesser and sequence is self.sequences[0]:
            known = len(sequence) - len(self._guessed)
            self._guesser.see(sequence.tokens[:known], start, hidden)

    @property
    def ends_with_next(self) -> bool:
        """Whether the next token is its last one, whichever it is."""
        most = self.asked.params.max_tokens
        return most is not None and len(self.transcript.sampled) + 1 >= most

    def _continues(self, tokens: int) -> bool:
        """Whether the text is known to run that many more tokens, unless one of them ends it."""
        most = self.asked.params.max_tokens
        return (
            (self._guesser is None or self._guesser.rests)
            and len(self.sequences[0]) + tokens < self._tools.context
            and (most is None or len(self.transcript.sampled) + tokens < most)
        )

    def receive(self, outcome: Outcome) -> TokenWanted | SampledToken | None:
        """Keep the rows until all sequences have run; then ask for the next token."""
        if self._mask is not None:
            mask, self._mask = self._mask, None
            mask.result()
        for rows in outcome.rows:
            self._rows.setdefault(id(rows.sequence), []).append(rows.logits)
        if self._clock.first is None:
            self._report(min(self.sequences[0].computed, len(self.prompt)))
        return self._next_token(outcome.token) if self.is_ready else None

    def _next_token(self, sampled: int | None) -> TokenWanted | SampledToken | None:
        if self._clock.first is None:
            self._clock.first = time.perf_counter()
            self._state = RequestState.GENERATING
        else:
            self._clock.steps += 1
        if sampled is not None:
            return SampledToken(require_token(sampled)) if self._has_room() else None
        rows = [joined(self._rows[id(sequence)]) for sequence in self.sequences]
        self._rows.clear()
        if not self._has_room():
            return None
        row = rows[0][:1]
        if self._guessed:
            self._guess_rows = rows[0][1:]
        if len(rows) > 1:
            guide(row[0], rows[1][0], self.asked.cfg_scale)
        return TokenWanted(self.transcript.sampler, row)

    def take(self, token: SampledToken) -> None:
        """Add the token, those of the guess that were right, and those that a grammar forces."""
        self._tools.counters.text_steps += 1
        if self._guessed:
            self._push_verified(token)
        else:
            self._push(token)
        now = time.perf_counter()
        if self._clock.last is not None:
            self._tools.counters.gaps.add(now - self._clock.last)
        self._clock.last = now
        while self._has_room() and (forced := self.transcript.forced_tokens()):
            for each in forced:
                if self._has_room():
                    self._push(SampledToken(each))
        if self.transcript.is_open:
            self._guess()
        else:
            self._finish()

    def _push_verified(self, token: SampledToken) -> None:
        sequence, guessed, rows = self.sequences[0], self._guessed, self._guess_rows
        self._guessed, self._guess_rows = [], _NO_ROWS
        sequence.cut(len(sequence) - len(guessed))
        verified = len(sequence)
        right = 0
        self._push(token)
        while right < len(guessed) and token.token == guessed[right] and self._has_room():
            token = self.transcript.sampler.sample(rows[right : right + 1])
            right += 1
            self._push(token)
        sequence.rewind(verified + right)
        self._tried += len(guessed)
        self._right += right
        self._tools.counters.guessed_tokens += len(guessed)
        self._tools.counters.accepted_tokens += right
        if self._guesser:
            self._guesser.learn(len(guessed), right)

    def expire(self) -> None:
        """End the text if its time limit has passed."""
        if self.asked.params.time_limit is None:
            return
        if self.transcript.is_open and self.transcript.is_late:
            self._end("time")

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        if self._guesser:
            self._guesser.close()
        self.channel.fail(error)

    def _push(self, token: SampledToken) -> None:
        transcript = self.transcript
        before = len(transcript.sampled)
        text = transcript.push(token)
        self._tools.counters.generated_tokens += len(transcript.sampled) - before
        if text:
            self.channel.write(text)
        if transcript.finish_reason is None:
            for sequence in self.sequences:
                sequence.append(token.token)

    def _guess(self) -> None:
        if self._guesser is None:
            return
        sequence = self.sequences[0]
        room = self._tools.context - len(sequence) - 1
        if self.asked.params.max_tokens is not None:
            room = min(room, self.asked.params.max_tokens - len(self.transcript.sampled) - 1)
        if sequence.is_ahead:  # the next step has begun already
            room = 0
        guess = self._guesser.guess(sequence.tokens, max(room, 0))
        if guess and sequence.guess(guess):
            self._guessed = guess

    def _has_room(self) -> bool:
        """Whether one more token fits the context; if not, the text ends or is shifted."""
        if self.transcript.finish_reason is not None:
            if not self.channel.is_ended and self._clock.last is None:
                self._finish()  # max_tokens is 0
            return False
        if max(map(len, self.sequences)) < self._tools.context:
            return True
        match self.asked.overflow:
            case Overflow.STOP:
                self._end("context")
            case Overflow.ERROR:
                self.transcript.end("context")
                self.fail(
                    ContextLengthError(
                        f"the text has filled the context of {self._tools.context} tokens; "
                        "open the model with a larger context, ask for fewer tokens, or set "
                        "context_overflow='shift' or 'stop'"
                    )
                )
            case Overflow.SHIFT:
                self._shift()
        return False

    def _shift(self) -> None:
        """Continue with the first tokens and the newest; they are read again as a prompt."""
        sequence = self.sequences[0]
        keep = min(self.asked.keep, self._tools.context - 2)
        newest = (len(sequence) - keep) // 2
        tokens = sequence.tokens
        sequence.replace(np.concatenate([tokens[:keep], tokens[len(tokens) - newest :]]))

    def _report(self, done: int) -> None:
        self.channel.write(Progress(done, len(self.prompt)))

    def _end(self, reason: FinishReason) -> None:
        if rest := self.transcript.end(reason):
            self.channel.write(rest)
        self._finish()

    def _finish(self) -> None:
        written = self.transcript
        assert written.finish_reason is not None, "it has ended"
        if self._guesser:
            self._guesser.close()
        _log.debug(
            "request ended (%s): %d prompt tokens, %d of them reused, %d generated",
            written.finish_reason,
            len(self.prompt),
            self._reused,
            len(written.sampled),
        )
        self.channel.finish(
            Completion(
                written.text,
                written.token_ids,
                written.finish_reason,
                self.timings,
                written.chain.seed,
                written.stopped_by,
                written.logprobs,
                written.chain_logprobs,
                ending=None if written.ending is None else written.ending.logprobs,
            )
        )
