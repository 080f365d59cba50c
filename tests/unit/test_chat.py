"""ChatSession: what it remembers, what it forgets, and what it says of bad files."""

import asyncio
import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from holding import held
from ingot import LLM, ChatSession
from ingot.chat import Exchange
from ingot.engine import RequestState
from ingot.errors import (
    ConfigError,
    ContextLengthError,
    FileWriteError,
    ProcessorError,
    RequestCancelledError,
    SamplingError,
    SavedChatError,
)
from tiny_llama import CONTEXT, write_tiny_llama

FEW = {"max_tokens": 4, "temperature": 0}
LONG = {"max_tokens": 100_000, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = write_tiny_llama(tmp_path_factory.mktemp("chat") / "tiny.gguf")
    # The same messages give the same answer, whatever was said before: see docs/engine.md.
    with LLM(path, threads=1, reuse="prompt") as opened:
        yield opened


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """A model whose answers do not end before they are stopped."""
    path = tmp_path_factory.mktemp("chat") / "long.gguf"
    write_tiny_llama(path, keys={"llama.context_length": 200_000})
    with LLM(path, threads=1, context=150_000, cache_tokens=150_000) as opened:
        yield opened


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_answers_are_those_of_chat_with_all_messages(llm: LLM) -> None:
    session = llm.session("Be kind.", **FEW)
    assert session.messages == [{"role": "system", "content": "Be kind."}]
    said: list[dict[str, str]] = session.messages
    for text in ("hi", "and?", "really <|end|>"):
        answer = session.send(text)
        assert answer.text == llm.chat([*said, user(text)], **FEW).text
        said += [user(text), assistant(answer.text)]
        assert session.messages == said
    assert session.tokens == len(llm.chat_prompt(said, add_generation_prompt=False))
    assert llm.session().tokens == 0


def test_fields_of_one_answer(llm: LLM) -> None:
    session = llm.session(**FEW)
    assert len(session.send("hi", max_tokens=2).token_ids) == 2
    assert len(session.send("hi").token_ids) == 4
    with pytest.raises(SamplingError, match="temperature"):
        session.send("hi", temperature=-1)
    assert len(session.exchanges) == 2


def test_a_streamed_answer_is_remembered_at_its_end(llm: LLM) -> None:
    session = llm.session(**FEW)
    answer = session.stream("hi")
    assert session.messages[0] == user("hi")
    text = "".join(answer)
    assert session.exchanges == (Exchange("hi", text),)
    assert session.exchanges == (Exchange("hi", text),)  # once


def test_progress_is_told_to_who_reads(llm: LLM) -> None:
    told: list[tuple[int, int]] = []
    answer = llm.session(**FEW).stream("word " * 20, progress=lambda *now: told.append(now))
    list(answer)
    total = len(answer.prompt_ids)
    assert told[-1] == (total, total)


def test_a_stopped_answer_keeps_what_was_written(talkative: LLM) -> None:
    session = talkative.session(**LONG)
    answer = session.stream("hi")
    begun = "".join(next(answer) for _ in range(5))
    assert session.messages[1]["content"].startswith(begun)  # as far as it is
    answer.cancel()
    session.stop()
    assert answer.state is RequestState.CANCELLED
    (kept,) = session.exchanges
    assert kept == Exchange("hi", answer.text)
    assert kept.answer.startswith(begun)


def test_another_message_stops_the_answer(talkative: LLM) -> None:
    session = talkative.session(**LONG)
    first = session.stream("hi")
    next(first)
    second = session.send("ho", max_tokens=3)
    assert first.state is RequestState.CANCELLED
    assert [exchange.answer for exchange in session.exchanges] == [first.text, second.text]


def test_an_answer_stopped_before_its_first_word_leaves_no_trace(talkative: LLM) -> None:
    session = talkative.session(**LONG)
    with held(talkative):
        answer = session.stream("word " * 400)
        answer.cancel()
    session.stop()
    assert answer.text == ""
    assert session.messages == []


def test_a_failed_answer_leaves_no_trace(llm: LLM) -> None:
    def broken(token_ids: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        if len(token_ids) > count:
            raise ZeroDivisionError(len(logits))

    session = llm.session(**FEW)
    session.send("hi")
    count = len(llm.chat_prompt([*session.messages, user("ho")])) + 2  # in mid-answer
    with pytest.raises(ProcessorError):
        session.send("ho", processors=broken)
    assert [exchange.question for exchange in session.exchanges] == ["hi"]
    assert session.send("ho").text
    with pytest.raises(ProcessorError):
        list(session.stream("ho", processors=broken))
    assert session.send("and?").text
    assert [exchange.question for exchange in session.exchanges] == ["hi", "ho", "and?"]


def test_in_coroutines(llm: LLM, talkative: LLM) -> None:
    async def main() -> None:
        sessions = [llm.session(**FEW) for _ in range(4)]
        texts = await asyncio.gather(*(s.asend(f"hi {n}") for n, s in enumerate(sessions)))
        for number, (session, done) in enumerate(zip(sessions, texts, strict=True)):
            assert session.exchanges == (Exchange(f"hi {number}", done.text),)

        session = talkative.session(**LONG)
        waiting = asyncio.create_task(session.asend("hi"))
        while not session.exchanges or not session.exchanges[0].answer:
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        again = asyncio.create_task(session.asend("ho"))
        while len(session.exchanges) < 2 or not session.exchanges[1].answer:
            await asyncio.sleep(0.01)
        await session.asend("and?", max_tokens=2)  # in mid-answer
        with pytest.raises(RequestCancelledError):
            await again
        assert [exchange.question for exchange in session.exchanges] == ["hi", "ho", "and?"]

    asyncio.run(main())


def test_undo_and_reset(llm: LLM) -> None:
    session = llm.session("Be kind.", **FEW)
    assert session.undo() is None
    first = session.send("hi").text
    second = session.send("ho").text
    assert session.undo() == Exchange("ho", second)
    assert session.exchanges == (Exchange("hi", first),)
    assert session.send("ho").text == second
    session.reset()
    assert session.messages == [{"role": "system", "content": "Be kind."}]
    assert session.send("hi").text == first


def test_undo_takes_an_answer_back_that_is_being_written(talkative: LLM) -> None:
    session = talkative.session(**LONG)
    answer = session.stream("hi")
    next(answer)
    taken = session.undo()
    assert taken == Exchange("hi", answer.text)
    assert answer.state is RequestState.CANCELLED
    assert session.messages == []


def test_the_system_message_can_change(llm: LLM) -> None:
    session = llm.session(**FEW)
    session.send("hi")
    session.system = "Be brief."
    told = session.messages
    assert told[0] == {"role": "system", "content": "Be brief."}
    assert session.send("ho").text == llm.chat([*told, user("ho")], **FEW).text
    session.system = None
    assert session.messages[0]["role"] == "user"


def test_forks_go_apart(llm: LLM) -> None:
    session = llm.session("Be kind.", **FEW)
    session.send("hi")
    other = session.fork()
    assert other.messages == session.messages
    assert other.send("ho").text == session.send("ho").text  # the same fields, too
    other.system = None
    other.undo()
    assert session.system == "Be kind."
    assert [exchange.question for exchange in session.exchanges] == ["hi", "ho"]


def test_a_conversation_that_does_not_fit(llm: LLM) -> None:
    session = llm.session(**FEW)
    while session.tokens + 60 < CONTEXT:
        session.send("x" * 50)
    before = session.messages
    with pytest.raises(ContextLengthError, match=r"the conversation has \d+ tokens.*; reset it"):
        session.send("x" * 50)
    assert session.messages == before
    session.reset()
    assert session.send("x" * 50).text
    with pytest.raises(ContextLengthError, match=r"this message alone has 303 tokens"):
        llm.session(**FEW).send("x" * 300)


def test_an_answer_that_fills_the_context_ends_there(llm: LLM) -> None:
    session = llm.session(temperature=0, max_tokens=1000, ignore_eos=True)
    answer = session.send("x" * 200)
    assert answer.finish_reason == "context"
    assert session.exchanges[0].answer == answer.text
    with pytest.raises(ContextLengthError):
        llm.session(context_overflow="error", max_tokens=1000, ignore_eos=True).send("x" * 200)


def test_the_oldest_exchanges_are_dropped_on_request(llm: LLM) -> None:
    session = llm.session("Be kind.", overflow="drop", **FEW)
    for number in range(12):
        answer = session.stream(f"{number:02} " + "x" * 40)
        assert len(answer.prompt_ids) <= CONTEXT * 3 // 4
        read = llm.detokenize(answer.prompt_ids)
        seen = [n for n in range(number + 1) if f"{n:02} x" in read]
        assert "Be kind." in read
        assert seen == list(range(session.left_out, number + 1))
        answer.result()
    assert session.left_out > 0
    assert session.tokens < CONTEXT
    assert len(session.exchanges) == 12  # all are remembered
    assert session.fork().left_out == session.left_out
    while session.undo():
        pass
    assert session.left_out == 0
    with pytest.raises(ContextLengthError, match="this message alone"):
        session.send("x" * 300)
    with pytest.raises(ConfigError, match="overflow is 'shift'"):
        llm.session(overflow="shift")


def test_repr(llm: LLM) -> None:
    assert repr(llm.session()).endswith(", exchanges=0)")


@given(
    system=st.none() | st.text(max_size=8),
    past=st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), max_size=4),
)
def test_a_saved_conversation_comes_back(
    llm: LLM, tmp_path_factory: pytest.TempPathFactory, system: str | None, past: Any
) -> None:
    path = tmp_path_factory.mktemp("saved") / "chat.json"
    session = llm.session(system)
    session._past = [Exchange(question, answer) for question, answer in past]
    session.save(path)
    loaded = ChatSession.load(llm, path, **FEW)
    assert loaded.messages == session.messages
    assert loaded.system == system


def test_a_loaded_conversation_goes_on(llm: LLM, tmp_path: Path) -> None:
    session = llm.session("Be kind.", **FEW)
    session.send("grüße")
    session.save(tmp_path / "chat.json")
    assert "grüße" in (tmp_path / "chat.json").read_text(encoding="utf-8")
    loaded = ChatSession.load(llm, tmp_path / "chat.json", **FEW)
    assert loaded.send("ho").text == session.send("ho").text


HEAD = {"format": "ingot chat", "version": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a saved conversation, or is damaged: Expecting value"),
        (b"\xff\xfe\xfa", "is not a saved conversation, or is damaged"),
        (b"[" * 100_000, "is not a saved conversation, or is damaged"),
        (b"GGUF\x03\x00", "is not a saved conversation, or is damaged"),
        (b"[]", 'its "format" is not "ingot chat"'),
        (b'{"format": "other"}', 'its "format" is not "ingot chat"'),
        (HEAD | {"version": 2}, "has version 2; this Ingot reads version 1"),
        (HEAD | {"version": None}, "has version None"),
        (HEAD, '"messages" is not a list'),
        (HEAD | {"messages": {}}, '"messages" is not a list'),
        (HEAD | {"messages": [5]}, r'messages\[0\] has no "role" and "content"'),
        (HEAD | {"messages": [user("a"), {"role": "assistant"}]}, r"messages\[1\] has no"),
        (HEAD | {"messages": [{"role": "user", "content": [1]}]}, r"messages\[0\] has no"),
        (HEAD | {"messages": [user("\ud800")]}, r"messages\[0\] has no"),
        (HEAD | {"messages": [user("a")]}, "must alternate"),
        (HEAD | {"messages": [assistant("a"), user("b")]}, "must alternate"),
        (HEAD | {"messages": [user("a"), {"role": "system", "content": "b"}]}, "must alternate"),
    ],
)
def test_bad_files(llm: LLM, tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "chat.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(SavedChatError, match=message) as caught:
        ChatSession.load(llm, path)
    assert str(path) in str(caught.value)


def test_a_file_cut_anywhere_is_damaged(llm: LLM, tmp_path: Path) -> None:
    session = llm.session("Be kind.", **FEW)
    session.send("hi")
    path = tmp_path / "chat.json"
    session.save(path)
    whole = path.read_bytes().rstrip()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(SavedChatError):
            ChatSession.load(llm, path)


def test_a_missing_file(llm: LLM, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ChatSession.load(llm, tmp_path / "missing.json")


def test_what_is_no_file_of_a_conversation_does_not_block(llm: LLM, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(SavedChatError, match="cannot be read: it is not a regular file"):
            ChatSession.load(llm, path)
    with (tmp_path / "long").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SavedChatError, match="it is larger than 67108864 bytes"):
        ChatSession.load(llm, tmp_path / "long")


def test_a_conversation_that_cannot_be_saved_leaves_the_old_file(llm: LLM, tmp_path: Path) -> None:
    session = llm.session("Be kind.")
    session.save(tmp_path / "chat.json")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    session.system = "Be kind. " * 1000
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(FileWriteError, match=r"chat\.json cannot be written: File too large"):
            session.save(tmp_path / "chat.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ChatSession.load(llm, tmp_path / "chat.json").system == "Be kind."
    assert [path.name for path in tmp_path.iterdir()] == ["chat.json"]


@given(
    at=st.integers(0, 200),
    piece=st.binary(max_size=10) | st.sampled_from([b"[" * 50_000, b"9" * 5000, b"NaN", b"1e999"]),
    cut=st.integers(0, 40),
)
def test_a_damaged_conversation_is_read_or_refused(
    llm: LLM, tmp_path_factory: pytest.TempPathFactory, at: int, piece: bytes, cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    whole = json.dumps({"format": "ingot chat", "version": 1, "messages": messages}).encode()
    path.write_bytes(whole[:at] + piece + whole[at + cut :])
    try:
        loaded = ChatSession.load(llm, path)
    except SavedChatError:
        return
    assert all(isinstance(message["content"], str) for message in loaded.messages)
    loaded.save(path)
    assert ChatSession.load(llm, path).messages == loaded.messages
