"""What Ingot asks of Linux for speed; tests/systems has the other systems."""

import os
import sys
import threading
from pathlib import Path

import pytest

from ingot.cli.doctor.disk_speed import disk_speed
from ingot.machine import lower_priority, open_direct

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are calls of Linux")


def test_only_the_thread_that_asks_gets_a_lower_priority() -> None:
    def ask() -> None:
        lower_priority()
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    seen: list[int] = []
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert seen[0] >= 10
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


def test_a_large_file_has_a_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the file system of the tests has no direct reads."""
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(bytes(9 << 20))
    small.write_bytes(b"less than is read at once")
    monkeypatch.setattr(
        "ingot.cli.doctor.disk_speed.open_direct", lambda path: os.open(path, os.O_RDONLY)
    )
    assert (disk_speed(large) or 0) > 0
    assert disk_speed(small) is None
    monkeypatch.setattr("ingot.cli.doctor.disk_speed.open_direct", lambda _: None)
    assert disk_speed(large) is None


def test_a_file_that_is_not_there_cannot_be_read_directly(tmp_path: Path) -> None:
    assert open_direct(tmp_path / "missing") is None
