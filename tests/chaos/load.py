"""Clients that ask all the time, and know what each answer must be.

Every request has a seed, so a quiet run at the start gives the expected answer. Later, a stream
that survives must have exactly that text, and one that fails must have a prefix of it: no token
is lost or duplicated. Comes in: a server. Goes out: outcomes. It does not know which fault is on.
"""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any

from chaos.served import PARALLEL, PATIENCE, ServedProcess

CLIENTS = 6
_NAMES = ("a.slot", "b.slot", "c.slot")  # of saved slots
_UNKNOWN = "\ufffd"  # bytes of a character that was not completed


class Kind(StrEnum):
    """How a request ended."""

    EXACT = "exact"  # with the expected answer
    DROPPED = "dropped"  # by the client itself
    REFUSED = "refused"  # before its first event: 429, 503 or no connection
    ENDED = "ended"  # after some events, by an event that is an error
    CUT = "cut"  # after some events, by the end of the connection
    FAILED = "failed"  # with a 500, which means an error inside the server
    UNSAVED = "unsaved"  # a slot could not be saved or restored, with a reason
    WRONG = "wrong"  # in no way that is promised
    HUNG = "hung"


@dataclass(frozen=True)
class Outcome:
    """The end of a request."""

    kind: Kind
    what: str


@dataclass(frozen=True)
class Ask:
    """A request whose answer is always the same."""

    path: str
    body: dict[str, Any]

    @property
    def is_streamed(self) -> bool:
        """Whether its answer comes in events."""
        return bool(self.body.get("stream"))


class _BrokenError(Exception):
    """A request did not get its whole answer."""

    def __init__(self, kind: Kind, what: str, text: str = "") -> None:
        super().__init__(what)
        self.outcome = Outcome(kind, what)
        self.text = text


def asks() -> list[Ask]:
    """Everything that clients ask for."""
    made = []
    for seed in range(9):
        prompt = "There was once a miller who had three sons. " * (seed % 3 + 1)
        common = {"stream": True, "seed": seed, "temperature": 0.9, "ignore_eos": True}
        tokens = 80 + 40 * seed
        chat = {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens}
        made += [
            Ask("/completion", common | {"prompt": prompt, "n_predict": tokens}),
            Ask("/v1/completions", common | {"prompt": prompt, "max_tokens": tokens}),
            Ask("/v1/chat/completions", common | chat),
        ]
        if seed < 3:
            grammar = f"root ::= [a-z]{{{10 + seed},40}}"
            held = {"prompt": prompt, "grammar": grammar, "n_predict": 60, "seed": seed}
            made.append(Ask("/completion", {"stream": True, **held}))
            made.append(Ask("/v1/embeddings", {"input": [prompt, prompt[seed:]]}))
            made.append(Ask("/tokenize", {"content": prompt}))
    return made


def answer(served: ServedProcess, ask: Ask, *, events: int | None = None) -> str:
    """Ask, and read the answer; `events`: go away after so many."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    text, count = "", 0
    try:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        connection.request("POST", ask.path, json.dumps(ask.body), headers)
        response = connection.getresponse()
        if response.status in (429, 503):
            raise _BrokenError(Kind.REFUSED, f"{response.status} {response.read(300)!r}")
        if response.status != 200:
            kind = Kind.FAILED if response.status == 500 else Kind.WRONG
            raise _BrokenError(kind, f"{ask.path}: {response.status} {response.read(300)!r}")
        if not ask.is_streamed:
            return _comparable(json.loads(response.read()))
        for event in _events(response):
            if "error" in event:
                if not event["error"].get("message"):
                    raise _BrokenError(Kind.WRONG, f"an error without a message: {event}", text)
                raise _BrokenError(Kind.ENDED, event["error"]["message"], text)
            text += _piece(event)
            count += 1
            if count == events:
                raise _BrokenError(Kind.DROPPED, ask.path, text)
        return text
    except TimeoutError:
        raise _BrokenError(Kind.HUNG, f"{ask.path}: nothing for {PATIENCE} s", text) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        kind = Kind.CUT if count else Kind.REFUSED
        raise _BrokenError(kind, f"{ask.path}: {type(error).__name__} {error}", text) from None
    finally:
        connection.close()


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The events of a stream, up to its proper end; an error if there is none."""
    for line in response:
        if not line.startswith(b"data: "):
            continue
        data = line.removeprefix(b"data: ").strip()
        if data == b"[DONE]":
            return
        event = json.loads(data)
        yield event
        if event.get("stop"):  # how /completion ends
            return
    raise ConnectionError("the stream has no end mark")


def _piece(event: dict[str, Any]) -> str:
    if "content" in event:
        return str(event["content"])
    choice = event["choices"][0] if event.get("choices") else {}
    return str(choice.get("text") or choice.get("delta", {}).get("content") or "")


def _comparable(found: dict[str, Any]) -> str:
    return json.dumps(found.get("data", found.get("tokens")))


def difference(text: str, expected: str) -> str:
    """Where a text leaves the expected one."""
    pairs = enumerate(zip(text, expected, strict=False))
    same = next((i for i, (a, b) in pairs if a != b), min(len(text), len(expected)))
    shown = slice(same, same + 20)
    return f"after {same} characters {text[shown]!r} in place of {expected[shown]!r}"


@dataclass
class Load:
    """The clients, which can be paused."""

    served: ServedProcess
    seed: int
    expected: dict[int, str] = field(default_factory=dict)
    _asks: list[Ask] = field(default_factory=asks)
    _outcomes: list[Outcome] = field(default_factory=list)
    _change: threading.Condition = field(default_factory=threading.Condition)
    _is_on: bool = False
    _busy: int = 0
    _is_over: bool = False

    def begin(self) -> None:
        """Learn the answers in a quiet run, and start the clients, paused."""
        for number, ask in enumerate(self._asks):
            self.expected[number] = answer(self.served, ask)
        for number in range(CLIENTS):
            dice = Random(f"{self.seed} {number}")
            threading.Thread(target=self._work, args=(dice,), daemon=True).start()

    def resume(self) -> None:
        """Let the clients ask."""
        with self._change:
            self._is_on = True
            self._change.notify_all()

    def pause(self) -> list[Outcome]:
        """Wait until every client has its answer: how requests ended since the last pause."""
        with self._change:
            self._is_on = False
            if not self._change.wait_for(lambda: self._busy == 0, 2 * PATIENCE):
                self._outcomes.append(Outcome(Kind.HUNG, "a client still waits for its answer"))
            found, self._outcomes = self._outcomes, []
            return found

    def wait_for_answers(self, count: int) -> None:
        """Let so many requests more end."""
        with self._change:
            goal = len(self._outcomes) + count
            self._change.wait_for(lambda: len(self._outcomes) >= goal, PATIENCE)

    def end(self) -> None:
        """Let the clients go."""
        with self._change:
            self._is_over = self._is_on = True
            self._change.notify_all()

    def _work(self, dice: Random) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._is_on)
                if self._is_over:
                    return
                self._busy += 1
            outcome = self._save(dice) if dice.random() < 0.15 else self._ask(dice)
            with self._change:
                self._busy -= 1
                self._outcomes.append(outcome)
                self._change.notify_all()
            if outcome.kind is Kind.REFUSED:
                time.sleep(0.05)  # a client that is refused does not ask again at once

    def _ask(self, dice: Random) -> Outcome:
        number = dice.randrange(len(self._asks))
        ask, expected = self._asks[number], self.expected[number]
        events = dice.randrange(1, 20) if ask.is_streamed and dice.random() < 0.15 else None
        try:
            text = answer(self.served, ask, events=events)
        except _BrokenError as error:
            begun = error.text.rstrip(_UNKNOWN)
            if not expected.startswith(begun):
                return Outcome(Kind.WRONG, f"{ask.path}: {difference(begun, expected)}")
            return error.outcome
        if text != expected:
            return Outcome(Kind.WRONG, f"{ask.path}: {difference(text, expected)}")
        return Outcome(Kind.EXACT, ask.path)

    def _save(self, dice: Random) -> Outcome:
        """Save a slot or restore one; 400 says that there is nothing to save or restore yet."""
        action = dice.choice(["save", "restore"])
        path = f"/slots/{dice.randrange(PARALLEL)}?action={action}"
        try:
            status, answer = self.served.ask("POST", path, {"filename": dice.choice(_NAMES)})
        except TimeoutError:
            return Outcome(Kind.HUNG, path)
        except (OSError, http.client.HTTPException) as error:
            return Outcome(Kind.REFUSED, f"{path}: {error}")
        if status in (200, 400):
            return Outcome(Kind.EXACT, path)
        kind = Kind.REFUSED if status in (429, 503) else Kind.UNSAVED
        return Outcome(kind, f"{path}: {status} {answer}")


def reset(connection: socket.socket) -> None:
    """Close a connection with a reset in place of an end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    connection.close()
