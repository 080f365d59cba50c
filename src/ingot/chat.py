"""ChatSession: a conversation with a model that remembers its messages.

Messages come in one at a time, answers go out; `save` and `load` keep a conversation in a file. It
uses the model only through `LLM`, and does not know how answers are generated.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, Unpack

from ingot.engine import Completion, OnProgress, Request, RequestState
from ingot.engine.request_fields import RequestFields, read_fields
from ingot.errors import ConfigError, ContextLengthError, SavedChatError
from ingot.files import open_regular, write_file
from ingot.sampling import SamplingParams

if TYPE_CHECKING:
    from ingot.api import LLM

Overflow = Literal["error", "drop"]
Message = dict[str, str]

_FORMAT, _VERSION = "ingot chat", 1
_MOST_BYTES = 64 << 20  # of a file; parsing takes several times as much memory
_ENDED = (RequestState.DONE, RequestState.FAILED, RequestState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message and its answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class _Open:
    """A message whose answer is being generated, or has just ended."""

    question: str
    answer: Request

    @property
    def is_kept(self) -> bool:
        """Whether it belongs to the conversation: not if it failed, or stopped without text."""
        match self.answer.state:
            case RequestState.FAILED:
                return False
            case RequestState.CANCELLED:
                return bool(self.answer.text)
        return True

    def stop(self) -> None:
        self.answer.cancel()
        with suppress(Exception):  # its reader gets the error
            self.answer.result()

    def now(self) -> Exchange:
        return Exchange(self.question, self.answer.text)


class ChatSession:
    """A conversation that remembers its messages; `LLM.session` starts one.

    >>> session = llm.session("You answer in one short sentence.", temperature=0)
    >>> session.send("What is the capital of France?").text
    'The capital of France is Paris.'
    >>> session.send("And of Italy?").text
    'The capital of Italy is Rome.'
    >>> [message["role"] for message in session.messages]
    ['system', 'user', 'assistant', 'user', 'assistant']

    It answers one message at a time; the next message stops a running answer. The text of a
    stopped answer is kept. An answer that fails, or stops before its first piece of text, leaves
    the conversation unchanged.
    """

    def __init__(
        self,
        llm: "LLM",
        system: str | None = None,
        params: SamplingParams | None = None,
        *,
        overflow: Overflow = "error",
        **fields: Unpack[RequestFields],
    ) -> None:
        """Start a conversation; `system` is the system message.

        `overflow` decides what happens when the conversation outgrows the context: "error" raises
        `ContextLengthError`; "drop" omits the oldest exchanges from the prompt, so that a quarter
        of the context is free for the answer. `params` and `fields` are those of `LLM.stream`. An
        answer that fills the context stops there, unless `context_overflow` says otherwise.
        """
        if overflow not in ("error", "drop"):
            raise ConfigError(f"overflow is {overflow!r}; it must be 'error' or 'drop'")
        self.llm = llm
        self.system = system
        self._overflow = overflow
        self._params, others = read_fields(params, fields, llm.defaults)
        self._others = {"context_overflow": "stop", **others}
        self._past: list[Exchange] = []
        self._left_out = 0  # how many of the oldest are not in the prompt any more
        self._open: _Open | None = None

    def send(
        self, text: str, params: SamplingParams | None = None, **changes: Unpack[RequestFields]
    ) -> Completion:
        """Send a message and wait for the answer; the parameters apply to this answer only.

        >>> session = llm.session(temperature=0)
        >>> session.send("What is the capital of France?", max_tokens=3).finish_reason
        'length'
        """
        answer = self.stream(text, params, **changes)
        try:
            return answer.result()
        except BaseException:
            answer.cancel()
            raise

    def stream(
        self,
        text: str,
        params: SamplingParams | None = None,
        *,
        progress: OnProgress | None = None,
        **changes: Unpack[RequestFields],
    ) -> Request:
        """Send a message and iterate over the answer piece by piece.

        The answer is generated and remembered even if nobody reads it; `cancel()` or `stop()`
        stops it. `progress` is that of `LLM.stream`.

        >>> session = llm.session(temperature=0)
        >>> for piece in session.stream("What is the capital of France?"):
        ...     print(piece, end="|")
        The| capital| of| France| is| Paris|.|
        """
        self.stop()
        prompt = self._prompt(text)
        made, others = read_fields(params, changes, self._params)
        answer = self.llm.stream(prompt, made, progress=progress, **{**self._others, **others})
        self._open = _Open(text, answer)
        return answer

    async def asend(
        self, text: str, params: SamplingParams | None = None, **changes: Unpack[RequestFields]
    ) -> Completion:
        """`send` as a coroutine. Cancelling the awaiting task stops the answer.

        >>> import asyncio
        >>> session = llm.session(temperature=0)
        >>> asyncio.run(session.asend("What is the capital of France?")).text
        'The capital of France is Paris.'
        """
        if self._open is not None:
            self._open.answer.cancel()
            with suppress(Exception):
                await self._open.answer
        return await self.stream(text, params, **changes)

    def stop(self) -> None:
        """Stop the running answer, if there is one, and wait until it has stopped."""
        if self._open is not None:
            self._open.stop()
        self._file_ended()

    def undo(self) -> Exchange | None:
        """Remove the last message and its answer, and return them; None if there are none.

        >>> session = llm.session(temperature=0)
        >>> _ = session.send("What is the capital of France?")
        >>> session.undo().answer
        'The capital of France is Paris.'
        >>> session.messages
        []
        """
        self.stop()
        if not self._past:
            return None
        taken = self._past.pop()
        self._left_out = min(self._left_out, len(self._past))
        return taken

    def reset(self) -> None:
        """Remove all messages except the system message."""
        self.stop()
        self._past.clear()
        self._left_out = 0

    def fork(self) -> "ChatSession":
        """A copy of this conversation that continues independently.

        >>> session = llm.session(temperature=0)
        >>> _ = session.send("What is the capital of France?")
        >>> other = session.fork()
        >>> _ = other.send("And of Italy?")
        >>> len(session.exchanges), len(other.exchanges)
        (1, 2)
        """
        made = ChatSession(
            self.llm, self.system, self._params, overflow=self._overflow, **self._others
        )
        made._past = list(self.exchanges)
        made._left_out = self._left_out
        return made

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """All messages with their answers; a running answer has its text so far."""
        self._file_ended()
        return (*self._past, *([] if self._open is None else [self._open.now()]))

    @property
    def messages(self) -> list[Message]:
        """The conversation as messages for `LLM.chat`, with the system message."""
        return self._messages(self.exchanges)

    @property
    def left_out(self) -> int:
        """How many of the oldest exchanges are omitted from the prompt."""
        return self._left_out

    @property
    def tokens(self) -> int:
        """The length of the conversation in tokens; `llm.context` is the limit."""
        messages = self._messages(self.exchanges[self._left_out :])
        return len(self.llm.chat_prompt(messages, add_generation_prompt=False)) if messages else 0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the conversation to a JSON file; an existing file is replaced atomically.

        >>> session = llm.session("Be kind.", temperature=0)
        >>> _ = session.send("What is the capital of France?")
        >>> session.save(folder / "france.json")
        >>> ChatSession.load(llm, folder / "france.json").messages == session.messages
        True
        """
        saved = {"format": _FORMAT, "version": _VERSION, "messages": self.messages}
        text = json.dumps(saved, indent=2, ensure_ascii=False)
        write_file(path, [f"{text}\n".encode(errors="replace")])

    @classmethod
    def load(
        cls,
        llm: "LLM",
        path: str | os.PathLike[str],
        params: SamplingParams | None = None,
        *,
        overflow: Overflow = "error",
        **fields: Unpack[RequestFields],
    ) -> Self:
        """Load a conversation from a file; the other arguments are those of `LLM.session`.

        A damaged file, or one that `save` did not write, raises `SavedChatError`; a missing one
        raises `FileNotFoundError`.
        """
        system, past = _read(Path(path))
        made = cls(llm, system, params, overflow=overflow, **fields)
        made._past = past
        return made

    def __repr__(self) -> str:
        return f"ChatSession({self.llm!r}, exchanges={len(self.exchanges)})"

    def _file_ended(self) -> None:
        """Add an answer that has ended to the conversation, or drop it."""
        if self._open is not None and self._open.answer.state in _ENDED:
            if self._open.is_kept:
                self._past.append(self._open.now())
            self._open = None

    def _prompt(self, text: str) -> list[int]:
        """The prompt tokens of the conversation and a new message, if they fit."""
        context = self.llm.context
        ids = self._render(text)
        if self._overflow == "drop":
            while len(ids) > context - context // 4 and self._left_out < len(self._past):
                self._left_out += 1
                ids = self._render(text)
        if len(ids) >= context:
            what, remedy = "the conversation has", "reset it, set overflow='drop'"
            if self._left_out == len(self._past):
                what, remedy = "this message alone has", "shorten it"
            raise ContextLengthError(
                f"{what} {len(ids)} tokens, but the context holds {context} with the answer; "
                f"{remedy} or open the model with a larger context"
            )
        return ids

    def _render(self, text: str) -> list[int]:
        asked: Message = {"role": "user", "content": text}
        return self.llm.chat_prompt([*self._messages(self._past[self._left_out :]), asked])

    def _messages(self, exchanges: Iterable[Exchange]) -> list[Message]:
        made = [] if self.system is None else [{"role": "system", "content": self.system}]
        for exchange in exchanges:
            made.append({"role": "user", "content": exchange.question})
            made.append({"role": "assistant", "content": exchange.answer})
        return made


def _read(path: Path) -> tuple[str | None, list[Exchange]]:
    """Read and check a file: the system message and the exchanges."""
    try:
        with open_regular(path) as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SavedChatError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise SavedChatError(
            f"{path} is not a saved conversation: it is larger than {_MOST_BYTES} bytes"
        )
    try:
        saved = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SavedChatError(
            f"{path} is not a saved conversation, or is damaged: {error}"
        ) from None
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
        raise SavedChatError(f'{path} is not a saved conversation: its "format" is not "{_FORMAT}"')
    if saved.get("version") != _VERSION:
        raise SavedChatError(
            f"{path} has version {saved.get('version')!r:.20}; this Ingot reads version {_VERSION}"
        )
    messages = saved.get("messages")
    if not isinstance(messages, list):
        raise SavedChatError(f'{path} is damaged: "messages" is not a list')
    said = [_message(path, number, message) for number, message in enumerate(messages)]
    system = said.pop(0)[1] if said and said[0][0] == "system" else None
    roles = [role for role, _ in said]
    if roles != ["user", "assistant"] * (len(said) // 2):
        raise SavedChatError(f"{path} is damaged: user and assistant messages must alternate")
    texts = [text for _, text in said]
    return system, list(map(Exchange, texts[::2], texts[1::2]))


def _message(path: Path, number: int, message: object) -> tuple[str, str]:
    """The role and the text of a message."""
    match message:
        case {"role": str(role), "content": str(text)}:
            with suppress(UnicodeEncodeError):  # an unpaired surrogate
                text.encode()
                return role, text
    raise SavedChatError(f'{path} is damaged: messages[{number}] has no "role" and "content"')
