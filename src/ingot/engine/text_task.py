"""TextTask: one text on its way through the engine.

Comes in: what was asked for, and rows of logits after each step. Goes out: tokens to run next,
and pieces of text to a channel. It knows nothing of other tasks; the scheduler knows of it only
its strands.

With guidance a second strand runs beside the first. Tokens that a grammar leaves no choice
about, and tokens that were guessed (see speculation.py), run in one step with the one before.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ingot.backends.device_sampler import SamplingPlan
from ingot.engine.channel import Channel, Progress
from ingot.engine.request import Completion, RequestState, Timings
from ingot.engine.strand import Strand
from ingot.engine.transcript import Transcript
from ingot.errors import ContextLengthError
from ingot.sampling import ChainBuilder, FinishReason, SampledToken, SamplingParams, guide
from ingot.sampling.plan import require_token, sampling_plan
from ingot.tokenizer import Tokenizer

Ints = NDArray[np.int32]
Logits = NDArray[np.float32]


class Overflow(StrEnum):
    """What becomes of a text that fills the context."""

    ERROR = "error"  # it fails with ContextLengthError
    STOP = "stop"  # it ends, and says that this is why
    SHIFT = "shift"  # the first `keep` tokens and the newer half of the rest are read again


class Proposer(Protocol):
    """Guesses the next tokens of one text."""

    def propose(self, tokens: Ints, most: int) -> list[int]:
        """Up to `most` tokens after these."""

    def learn(self, proposed: int, accepted: int) -> None:
        """Hear how many of the last guess were right."""

    def close(self) -> None:
        """The text has ended."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a text is to be."""

    prompt: Ints
    params: SamplingParams
    negative: Ints | None = None  # guidance goes away from this prompt
    cfg_scale: float = 1.0
    heal: bool = False
    overflow: Overflow = Overflow.ERROR
    keep: int = 0  # tokens that a shift leaves at the front
    reuse: bool = True  # begin with what the cache has of the prompt
    written: tuple[SampledToken, ...] = ()  # tokens of the text that are there already
    parse: Callable[[str], Any] | None = None  # from the whole text to `Completion.parsed`


@dataclass(slots=True)
class Clock:
    """When a text came, had its turn, could choose its first token, and chose its last."""

    came: float = field(default_factory=time.perf_counter)
    began: float | None = None
    first: float | None = None
    last: float | None = None
    steps: int = 0


class TextTask:
    """A text, its strands and its end."""

    def __init__(
        self,
        asked: Asked,
        builder: ChainBuilder,
        tokenizer: Tokenizer,
        context: int,
        proposer: Proposer | None = None,
    ) -> None:
        self.asked = asked
        self.channel: Channel[Completion] = Channel()
        self.prompt = asked.prompt
        begun = b""
        if asked.heal and len(self.prompt) > 1:
            begun = builder.begun_by(int(self.prompt[-1]))
            self.prompt = self.prompt[:-1] if begun else self.prompt
        self.transcript = Transcript(asked.params, self.prompt, builder, tokenizer, begun)
        for choice in asked.written:
            self.transcript.push(choice)
        texts = [self.prompt, *([] if asked.negative is None else [asked.negative])]
        self.strands = [Strand(text, reuse=asked.reuse) for text in texts]
        for strand in self.strands:
            strand.extend(choice.token for choice in asked.written)
        self._state = RequestState.QUEUED
        self._context = context
        self._proposer = proposer
        self._guessed: list[int] = []  # the last tokens of the strand, to be verified
        self._rows: dict[int, list[Logits]] = {}  # of each strand, until all have run
        self._later = np.empty((0, 0), np.float32)  # rows that verify guesses
        self._chosen: int | None = None  # by the backend, instead of rows
        self._clock = Clock()
        self.gap: float | None = None  # seconds between its last two tokens
        self._reused = 0
        if not self.transcript.is_open and asked.written:
            self._finish()

    @property
    def state(self) -> RequestState:
        """Where it is on its way, if it has not ended."""
        return self._state if self.strands[0].sequence else RequestState.QUEUED

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
        )

    @property
    def has_masks(self) -> bool:
        """Whether its chain has work to do while the model runs."""
        return self.asked.params.grammar is not None

    def begin_step(self) -> None:
        """Hear that some of its tokens are about to run."""
        if self._clock.began is not None:
            return
        self._clock.began = time.perf_counter()
        self._state = RequestState.PROMPT
        sequence = self.strands[0].sequence
        self._reused = sequence.reused if sequence else 0
        self._tell(self._reused)

    def end_step(self) -> None:
        """Hear that they have run."""
        if self._clock.first is None:
            self._tell(min(self.strands[0].computed, len(self.prompt)))

    def receive(self, strand: Strand, _: int, rows: Logits) -> None:
        """Take logits that were wanted of a strand."""
        self._rows.setdefault(id(strand), []).append(rows)

    def receive_token(self, token: int) -> None:
        """Take what the backend has chosen instead."""
        self._chosen = token

    def sampling_plan(self) -> SamplingPlan | None:
        """How the next token is chosen, if a backend may be able to do it by itself."""
        if self._guessed or len(self.strands) > 1:
            return None
        return sampling_plan(self.transcript.sampler)

    def choice_ahead(self) -> SamplingPlan | None:
        """How the token after the next is chosen, if that is known, and there is room for both."""
        most = self.asked.params.max_tokens
        if (
            self._proposer is not None
            or len(self.strands) > 1
            or len(self.strands[0]) + 1 >= self._context
            or (most is not None and len(self.transcript.sampled) + 2 > most)
        ):
            return None
        return sampling_plan(self.transcript.sampler, ahead=1)

    def first_row(self) -> Logits | SampledToken | None:
        """Logits [1, vocabulary] to choose the next token from, if there is to be one.

        If the backend has chosen, it is that.
        """
        if self._clock.first is None:
            self._clock.first = time.perf_counter()
            self._state = RequestState.GENERATING
        else:
            self._clock.steps += 1
        chosen, self._chosen = self._chosen, None
        if chosen is not None:
            return SampledToken(require_token(chosen)) if self._has_room() else None
        rows = [_joined(self._rows[id(strand)]) for strand in self.strands]
        self._rows.clear()
        if not self._has_room():
            return None
        self._later = rows[0][1:]
        row = rows[0][:1]
        if len(rows) > 1:
            guide(row[0], rows[1][0], self.asked.cfg_scale)
        return row

    def take(self, choice: SampledToken) -> None:
        """Add the token chosen from the first row, and those that later rows confirm."""
        strand, guessed, rows = self.strands[0], self._guessed, self._later
        self._guessed = []
        strand.cut(len(strand) - len(guessed))
        verified = len(strand)
        right = 0
        self._push(choice)
        while self._has_room() and right < len(guessed) and choice.token == guessed[right]:
            choice = self.transcript.sampler.sample(rows[right : right + 1])
            right += 1
            self._push(choice)
        if guessed:
            strand.rewind(verified + right)
            if self._proposer:
                self._proposer.learn(len(guessed), right)
        now = time.perf_counter()
        self.gap = None if self._clock.last is None else now - self._clock.last
        self._clock.last = now
        while self._has_room() and (forced := self.transcript.forced_tokens()):
            for token in forced:
                if self._has_room():
                    self._push(SampledToken(token))
        if self.transcript.is_open:
            self._guess()
        else:
            self._finish()

    def expire(self) -> None:
        """End it if its time is over."""
        if self.transcript.is_open and self.transcript.is_late:
            self._end("time")

    def fail(self, error: BaseException) -> None:
        """End it with an error."""
        if self._proposer:
            self._proposer.close()
        self.channel.fail(error)

    def _push(self, choice: SampledToken) -> None:
        text = self.transcript.push(choice)
        if text:
            self.channel.write(text)
        if self.transcript.is_open:
            for strand in self.strands:
                strand.extend([choice.token])

    def _guess(self) -> None:
        if self._proposer is None or len(self.strands) > 1 or self.has_masks:
            return
        strand = self.strands[0]
        room = self._context - len(strand) - 1
        if self.asked.params.max_tokens is not None:
            room = min(room, self.asked.params.max_tokens - len(self.transcript.sampled) - 1)
        if room > 0:
            self._guessed = self._proposer.propose(strand.tokens, room)
            strand.extend(self._guessed, rows=1 + len(self._guessed))

    def _has_room(self) -> bool:
        """Whether one more token may be chosen; a text without room ends, or makes some."""
        if not self.transcript.is_open:
            if not self.channel.is_ended and self._clock.last is None:
                self._finish()  # nothing was to be written
            return False
        if max(map(len, self.strands)) < self._context:
            return True
        match self.asked.overflow:
            case Overflow.STOP:
                self._end("context")
            case Overflow.ERROR:
                self.transcript.end("context")
                self.fail(
                    ContextLengthError(
                        f"the text has come to the end of the context of {self._context} tokens; "
                        "open the model with a larger context, ask for fewer tokens, or choose "
                        "context_overflow='shift' or 'stop'"
                    )
                )
            case Overflow.SHIFT:
                self._shift()
        return False

    def _shift(self) -> None:
        """Go on with the first tokens and the newest; they are read again as a prompt."""
        strand = self.strands[0]
        keep = min(self.asked.keep, self._context - 2)
        newest = (len(strand) - keep) // 2
        tokens = strand.tokens
        strand.replace(np.concatenate([tokens[:keep], tokens[len(tokens) - newest :]]))

    def _tell(self, done: int) -> None:
        self.channel.write(Progress(done, len(self.prompt)))

    def _end(self, reason: FinishReason) -> None:
        if rest := self.transcript.end(reason):
            self.channel.write(rest)
        self._finish()

    def _finish(self) -> None:
        written = self.transcript
        assert written.finish_reason is not None, "it has come to its end"
        if self._proposer:
            self._proposer.close()
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


def _joined(rows: list[Logits]) -> Logits:
    return rows[0] if len(rows) == 1 else np.concatenate(rows)
