"""A chat session that prints: messages come in, answers stream to stdout, notices to stderr.

It does not know where messages come from.
"""

from dataclasses import replace
from pathlib import Path

from ingot.api import LLM
from ingot.chat import ChatSession, Overflow
from ingot.cli.shared.answer import PromptBar, write_answer
from ingot.cli.shared.open_model import full_context
from ingot.cli.shared.output import notice
from ingot.engine import Request
from ingot.errors import ConfigError, ContextLengthError
from ingot.sampling import SamplingParams


class Conversation:
    """A `ChatSession`, its sampling parameters, and what /retry and /stats need to know."""

    def __init__(
        self, llm: LLM, system: str | None, params: SamplingParams, overflow: Overflow
    ) -> None:
        self.llm = llm
        self.session = ChatSession(llm, system, overflow=overflow, params=params)
        self._params = params
        self._overflow = overflow
        self._last: Request | None = None
        self._unanswered: str | None = None  # a message without an answer in the session
        self._tries = 0

    def say(self, text: str) -> bool:
        """Send a message and print the answer; True if Ctrl-C stopped it."""
        self._tries = 0
        return self._answer(text, self._params)

    def retry(self) -> bool:
        """Answer the last message again, with the next seed if the user set one."""
        text = self._unanswered
        if text is None:
            taken = self.session.undo()
            if taken is None:
                raise ConfigError("there is no message to answer again")
            text = taken.question
        self._tries += 1
        params = self._params
        if params.seed is not None:
            params = replace(params, seed=params.seed + self._tries)
        return self._answer(text, params)

    def undo(self) -> None:
        """Remove the last message and its answer."""
        taken = self.session.undo()
        if taken is None:
            raise ConfigError("there is no message to remove")
        self._unanswered = None
        notice(f"removed: {taken.question}")

    def reset(self) -> None:
        """Start a new conversation with the same system message."""
        self.session.reset()
        self._unanswered = None
        notice("started a new conversation")

    def load(self, path: Path) -> None:
        """Continue a conversation from a file."""
        self.session = ChatSession.load(
            self.llm, path, overflow=self._overflow, params=self._params
        )
        self._unanswered = None
        notice(f"loaded {path}; exchanges: {len(self.session.exchanges)}")

    def show_stats(self) -> None:
        """Print the length of the conversation and the speed of the last answer."""
        notice(
            f"exchanges: {len(self.session.exchanges)}; "
            f"context: {self.session.tokens} of {self.llm.context} tokens"
        )
        if self.session.left_out:
            notice(f"oldest messages omitted: {self.session.left_out}")
        if self._last is not None:
            timings = self._last.timings
            notice(
                f"last answer: prompt {timings.prompt_tokens} tokens ({timings.reused_tokens} from "
                f"the cache) in {timings.prompt_seconds:.2f} s; generated "
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
                    f"{error} (in this chat: /reset, --overflow drop or --context)"
                ) from None
            self._last = answer
            if self.session.left_out > left_out:
                notice(f"the context is full; oldest messages omitted: {self.session.left_out}")
            _, interrupted = write_answer(answer, bar)
        if interrupted:
            self.session.stop()
        if len(self.session.exchanges) > kept:
            self._unanswered = None
        match answer.finish_reason:
            case "length":
                notice("the answer stopped at --max-tokens")
            case "context":
                notice(f"the answer stopped: {full_context(self.llm)}; /reset starts anew")
        return interrupted
