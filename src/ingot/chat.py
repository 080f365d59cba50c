"""ChatSession: a conversation with a model, which remembers what was said.

Messages come in one by one, answers go out; `save` and `load` keep a conversation in a file. It
knows the model only through `LLM`: how an answer is written is not its business.
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
_MOST_BYTES = 64 << 20  # of a file; reading it takes some times as much memory
_ENDED = (RequestState.DONE, RequestState.FAILED, RequestState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message and its answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class _Open:
    """A message whose answer is being written, or has just ended."""

    question: str
    answer: Request

    @property
    def is_kept(self) -> bool:
        """Whether it is part of the conversation: not if it failed, or was stopped unwritten."""
        match self.answer.state:
            case RequestState.FAILED:
                return False
            case RequestState.CANCELLED:
                return bool(self.answer.text)
        return True

    def stop(self) -> None:
        self.answer.cancel()
        with suppress(Exception):  # what went wrong was said to its reader
            self.answer.result()

    def now(self) -> Exchange:
        return Exchange(self.question, self.answer.text)


class ChatSession:
    """A conversation; `LLM.session` begins one.

    >>> session = llm.session("You answer in one short sentence.", temperature=0)
    >>> session.send("What is the capital of France?").text
    'The capital of France is Paris.'
    >>> session.send("And of Italy?").text
    'The capital of Italy is Rome.'
    >>> [message["role"] for message in session.messages]
    ['system', 'user', 'assistant', 'user', 'assistant']

    One message is answered at a time: another one stops the answer that is being written. An
    answer that was stopped stays as far as it was written; one that failed, or was stopped
    before its first word, leaves the conversation as it was before.
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
        """`system` is what the model is told before everything else.

        `overflow`: what to do with a conversation that does not fit the context: "error", or
        "drop", which leaves the oldest exchanges out of what the model reads, so that a quarter
        of the context is free for the answer. `params` and `fields` are those of `LLM.stream`. An
        answer that fills the context ends there, unless `context_overflow` says otherwise.
        """
        if overflow not in ("error", "drop"):
            raise ConfigError(f"overflow is {overflow!r}; it must be 'error' or 'drop'")
        self.llm = llm
        self.system = system
        self._overflow = overflow
        self._params, others = read_fields(params, fields)
        self._others = {"context_overflow": "stop", **others}
        self._past: list[Exchange] = []
        self._left_out = 0  # of those, the oldest ones, which the model does not read any more
        self._open: _Open | None = None

    def send(
        self, text: str, params: SamplingParams | None = None, **changes: Unpack[RequestFields]
    ) -> Completion:
        """Send a message and wait for the answer; the parameters are for this answer alone.

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
        """Send a message; the answer comes piece by piece, and is remembered when it has ended.

        It is written whether somebody reads it or not; `cancel` it to stop it. `progress` is as
        for `LLM.stream`.

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
        """Stop the answer that is being written, if there is one, and wait for its end."""
        if self._open is not None:
            self._open.stop()
        self._file_ended()

    def undo(self) -> Exchange | None:
        """Take the last message and its answer back; None if there is none.

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
        """Forget everything but the system message."""
        self.stop()
        self._past.clear()
        self._left_out = 0

    def fork(self) -> "ChatSession":
        """A second conversation that begins as this one is now; they go on apart.

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
        """All messages and answers, the one that is being written as far as it is."""
        self._file_ended()
        return (*self._past, *([] if self._open is None else [self._open.now()]))

    @property
    def messages(self) -> list[Message]:
        """The same as `LLM.chat` takes them, with the system message."""
        return self._messages(self.exchanges)

    @property
    def left_out(self) -> int:
        """How many of the oldest exchanges the model does not read any more."""
        return self._left_out

    @property
    def tokens(self) -> int:
        """Tokens of the conversation as the model will read it; it has `llm.context` for them."""
        messages = self._messages(self.exchanges[self._left_out :])
        return len(self.llm.chat_prompt(messages, add_generation_prompt=False)) if messages else 0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the conversation to a file (JSON); a file that is there is replaced at the end.

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
        """Continue a conversation from a file; the other arguments are those of a new one.

        A file that is damaged, or that `save` did not write, is a `SavedChatError`; one that does
        not exist is a `FileNotFoundError`.
        """
        system, past = _read(Path(path))
        made = cls(llm, system, params, overflow=overflow, **fields)
        made._past = past
        return made

    def __repr__(self) -> str:
        return f"ChatSession({self.llm!r}, exchanges={len(self.exchanges)})"

    def _file_ended(self) -> None:
        """Put an answer that has ended where it belongs."""
        if self._open is not None and self._open.answer.state in _ENDED:
            if self._open.is_kept:
                self._past.append(self._open.now())
            self._open = None

    def _prompt(self, text: str) -> list[int]:
        """The tokens of the conversation and a message, if they fit."""
        context = self.llm.context
        ids = self._render(text)
        if self._overflow == "drop":
            while len(ids) > context - context // 4 and self._left_out < len(self._past):
                self._left_out += 1
                ids = self._render(text)
        if len(ids) >= context:
            what, remedy = "the conversation has", "reset it, choose overflow='drop'"
            if self._left_out == len(self._past):
                what, remedy = "this message alone makes", "shorten it"
            raise ContextLengthError(
                f"{what} {len(ids)} tokens, and the context has room for {context} with the "
                f"answer; {remedy} or open the model with a larger context"
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
    """The system message and the exchanges of a file, checked."""
    try:
        with open_regular(path) as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SavedChatError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise SavedChatError(f"{path} is no saved conversation: it has over {_MOST_BYTES} bytes")
    try:
        saved = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SavedChatError(f"{path} is no saved conversation, or is damaged: {error}") from None
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
        raise SavedChatError(f'{path} is no saved conversation: its "format" is not "{_FORMAT}"')
    if saved.get("version") != _VERSION:
        raise SavedChatError(
            f"{path} is of version {saved.get('version')!r:.20}; this Ingot reads {_VERSION}"
        )
    messages = saved.get("messages")
    if not isinstance(messages, list):
        raise SavedChatError(f'{path} is damaged: "messages" is not a list')
    said = [_message(path, number, message) for number, message in enumerate(messages)]
    system = said.pop(0)[1] if said and said[0][0] == "system" else None
    roles = [role for role, _ in said]
    if roles != ["user", "assistant"] * (len(said) // 2):
        raise SavedChatError(f"{path} is damaged: messages of user and assistant must alternate")
    texts = [text for _, text in said]
    return system, list(map(Exchange, texts[::2], texts[1::2]))


def _message(path: Path, number: int, message: object) -> tuple[str, str]:
    """The role and the text of a message."""
    match message:
        case {"role": str(role), "content": str(text)}:
            with suppress(UnicodeEncodeError):  # half of a pair of surrogates
                text.encode()
                return role, text
    raise SavedChatError(f'{path} is damaged: messages[{number}] has no "role" and "content"')
