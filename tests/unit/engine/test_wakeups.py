"""How readers are woken: an event loop once for all tokens of a step."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ingot.engine.channel import Channel, Progress
from ingot.engine.wakeups import LoopWaits, Outbox
from ingot.errors import EngineError

READERS = 20


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the messages of other threads."""

    messages = 0

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, **more: Any) -> Any:
        self.messages += 1
        return super().call_soon_threadsafe(callback, *args, **more)


def test_all_readers_of_a_loop_are_woken_by_one_message() -> None:
    outbox = Outbox()
    channels: list[Channel[str]] = [Channel() for _ in range(READERS)]
    for channel in channels:
        channel.outbox = outbox

    async def read(channel: Channel[str]) -> str | object:
        waits = LoopWaits(asyncio.get_running_loop(), channel.check)
        await waits.wait(lambda listener: channel.call_beyond(0, listener))
        return channel.events[0]

    async def run() -> tuple[list[object], int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        readers = [asyncio.create_task(read(channel)) for channel in channels]
        await asyncio.sleep(0)
        for number, channel in enumerate(channels):
            channel.write(str(number))
        before = loop.messages
        outbox.send()
        sent = loop.messages - before
        return await asyncio.gather(*readers), sent

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        texts, sent = runner.run(run())
    assert texts == [str(number) for number in range(READERS)]
    assert sent == 1


def test_threads_are_woken_with_the_others() -> None:
    outbox, called = Outbox(), []
    outbox.add([lambda: called.append(1), lambda: called.append(2)])
    assert called == []
    outbox.send()
    outbox.send()
    assert called == [1, 2]


def test_progress_does_not_wait_for_the_step() -> None:
    channel: Channel[str] = Channel()
    channel.outbox, called = Outbox(), []
    channel.call_beyond(0, lambda: called.append("progress"))
    channel.write(Progress(1, 2))
    assert called == ["progress"]
    channel.call_beyond(1, lambda: called.append("text"))
    channel.write("a")
    assert called == ["progress"]
    channel.outbox.send()
    assert called == ["progress", "text"]


def test_a_step_thread_that_fails_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.engine.wakeups.WATCH_SECONDS", 0.01)

    def failed() -> None:
        raise EngineError("it is gone")

    async def run() -> None:
        with pytest.raises(EngineError, match="it is gone"):
            await LoopWaits(asyncio.get_running_loop(), failed).wait(lambda _: None)

    asyncio.run(run())
