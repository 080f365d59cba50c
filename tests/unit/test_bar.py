"""The bar of a download: rate, time left, and sentences between stages."""

import io
from contextlib import redirect_stderr

import pytest

from ingot import bar
from ingot.bar import DownloadBar
from ingot.config import config

MIB = 1 << 20


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until a test moves it."""
    now = [100.0]
    monkeypatch.setattr(bar.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    config.cache_clear()
    return Terminal()


def test_rate_and_time_left(clock: list[float], terminal: Terminal) -> None:
    with redirect_stderr(terminal), DownloadBar() as progress:
        progress("downloading x", 100 * MIB, 1000 * MIB)  # continued: these bytes took no time
        clock[0] += 10
        progress("downloading x", 200 * MIB, 1000 * MIB)
    assert "200 of 1000 MiB, 10.0 MiB/s, 1:20 left" in terminal.getvalue()
    assert "100 of 1000 MiB, " not in terminal.getvalue()


def test_a_fast_download_is_not_drawn_for_every_piece(
    clock: list[float], terminal: Terminal
) -> None:
    with redirect_stderr(terminal), DownloadBar() as progress:
        for done in range(1000):
            clock[0] += 0.001
            progress("downloading x", done * MIB, 999 * MIB)
    assert terminal.getvalue().count("\rdownloading") < 20
    assert "999 of 999 MiB" in terminal.getvalue()


def test_sentences_are_lines_and_stages_begin_again(clock: list[float], terminal: Terminal) -> None:
    with redirect_stderr(terminal), DownloadBar() as progress:
        progress("taking Q8_0", 0, 0)
        progress("downloading x", 5 * MIB, 10 * MIB)
        clock[0] += 2
        progress("checking x", 1 * MIB, 10 * MIB)
    assert terminal.getvalue().startswith("taking Q8_0\n")
    assert "checking x [###" in terminal.getvalue()
    assert "MiB/s" not in terminal.getvalue()


def test_without_a_terminal_stages_are_announced() -> None:
    said: list[tuple[str, int]] = []
    announce = DownloadBar(lambda stage, total: said.append((stage, total)))
    with redirect_stderr(io.StringIO()), announce as progress:
        progress("taking Q8_0", 0, 0)
        progress("downloading x", 0, 10)
        progress("downloading x", 5, 10)
    assert said == [("taking Q8_0", 0), ("downloading x", 10)]
