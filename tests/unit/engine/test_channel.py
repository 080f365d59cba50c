"""A channel between two threads, and Ctrl-C wherever it can come."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from ingot.engine.channel import Channel


@contextmanager
def interrupted(at: int) -> Iterator[None]:
    """Raise KeyboardInterrupt behind the call with this number, where a signal is looked at."""
    seen = 0

    def look(_: FrameType, event: str, __: Any) -> None:
        nonlocal seen
        if event in ("call", "c_return"):
            seen += 1
            if seen == at:
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


class Writer(threading.Thread):
    """Writes until it is told to come to the end."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.channel: Channel[str] = Channel()
        self._told = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._told.is_set():
            self.channel.write("piece")
            time.sleep(0.0005)
        self.channel.finish("whole")
        self.channel.publish()

    def end(self) -> str:
        self._told.set()
        return self.channel.result(120)


def read(channel: Channel[str]) -> None:
    for _ in range(2):
        channel.wait_beyond(len(channel.events))


def wait(channel: Channel[str]) -> None:
    with pytest.raises(TimeoutError, match=r"not ended after 0\.002 s"):
        channel.result(0.002)


@pytest.mark.parametrize("use", [read, wait])
def test_ctrl_c_leaves_a_channel_that_works(use: Callable[[Channel[str]], None]) -> None:
    for at in range(1, 1000):
        writer = Writer()
        try:
            with interrupted(at):
                use(writer.channel)
        except KeyboardInterrupt:
            assert writer.end() == "whole"
            continue
        assert writer.end() == "whole"
        assert at > 10
        return
    pytest.fail("it went on and on")


def test_an_end_is_seen_when_it_is_published() -> None:
    channel: Channel[str] = Channel()
    called: list[str] = []
    channel.call_at_end(lambda: called.append("end"))
    channel.call_beyond(0, lambda: called.append("more"))
    channel.finish("text")
    assert (channel.is_ended, called) == (True, [])
    with pytest.raises(TimeoutError):
        channel.result(0)
    channel.publish()
    assert sorted(called) == ["end", "more"]
    assert channel.result(0) == "text"
    channel.fail(ValueError("too late"))
    assert channel.result() == "text"
