"""Talk: a conversation whose answers are written to stdout.

In come messages, out go answers as they are written; what is to be said about them goes to
stderr. Where messages come from is not known here.
"""

from dataclasses import replace
from pathlib import Path

from ingot.api import LLM
from ingot.chat import ChatSession, Overflow
from ingot.cli.text import notice
from ingot.cli.writing import PromptBar, write_answer
from ingot.engine import Request
from ingot.errors import ConfigError, ContextLengthError
from ingot.sampling import SamplingParams


class Talk:
    """A session, how its answers are written, and the last of them."""

    def __init__(
        self, llm: LLM, system: str | None, params: SamplingParams, overflow: Overflow
    ) -> None:
        self.llm = llm
        self.session = ChatSession(llm, system, overflow=overflow, params=params)
        self._params = params
        self._overflow = overflow
        self._last: Request | None = None
        self._unanswered: str | None = None  # a message of which nothing was kept
        self._tries = 0

    def say(self, text: str) -> bool:
        """Send a message and write the answer; whether Ctrl-C ended it."""
        self._tries = 0
        return self._answer(text, self._params)

    def retry(self) -> bool:
        """Have the last message answered anew, from the next seed if one was given."""
        text = self._unanswered
        if text is None:
            taken = self.session.undo()
            if taken is None:
                raise ConfigError("there is no message yet to answer again")
            text = taken.question
        self._tries += 1
        params = self._params
        if params.seed is not None:
            params = replace(params, seed=params.seed + self._tries)
        return self._answer(text, params)

    def undo(self) -> None:
        """Take the last message back."""
        taken = self.session.undo()
        if taken is None:
            raise ConfigError("there is no message to take back")
        self._unanswered = None
        notice(f"taken back: {taken.question}")

    def reset(self) -> None:
        """Forget all messages."""
        self.session.reset()
        self._unanswered = None
        notice("the conversation begins anew")

    def load(self, path: Path) -> None:
        """Go on with a conversation from a file."""
        self.session = ChatSession.load(
            self.llm, path, overflow=self._overflow, params=self._params
        )
        self._unanswered = None
        notice(f"loaded {path}; messages answered: {len(self.session.exchanges)}")

    def show_stats(self) -> None:
        """Say how long the conversation is, and how fast its last answer was."""
        notice(
            f"messages answered: {len(self.session.exchanges)}; "
            f"tokens in the context: {self.session.tokens} of {self.llm.context}"
        )
        if self.session.left_out:
            notice(f"oldest messages left out: {self.session.left_out}")
        if self._last is not None:
            timings = self._last.timings
            notice(
                f"last answer: prompt {timings.prompt_tokens} tokens, {timings.reused_tokens} of "
                f"them in the cache, read in {timings.prompt_seconds:.2f} s; generated "
                f"{timings.generated_tokens} tokens, {timings.generation_rate:.1f} t/s"
            )

    def _answer(self, text: str, params: SamplingParams) -> bool:
        self._unanswered = text
        kept, left_out = len(self.session.exchanges), self.session.left_out
        with PromptBar() as bar:
            try:
                answer = self.session.stream(text, params=params, progress=bar)
            except ContextLengthError as error:
                raise ContextLengthError(
                    f"{error} (here: /reset, --overflow drop, --context)"
                ) from None
            self._last = answer
            if self.session.left_out > left_out:
                notice(f"the context is full; oldest messages left out: {self.session.left_out}")
            _, interrupted = write_answer(answer, bar)
        if interrupted:
            self.session.stop()
        if len(self.session.exchanges) > kept:
            self._unanswered = None
        match answer.finish_reason:
            case "length":
                notice("the answer was ended by --max-tokens")
            case "context":
                notice("the answer was ended by the end of the context: /reset, or --context")
        return interrupted
