"""The bystander notices what it is there to notice."""

import threading
import time
from pathlib import Path

import httpx
import pytest
from bystander import LONGEST_LAG, Bystander, bystanding
from serving import PATIENCE


def test_nobody_is_late_on_a_server_at_rest(tmp_path: Path) -> None:
    with bystanding(tmp_path) as bystander:
        answer = httpx.post(
            f"{bystander.url}/v1/completions", json={"prompt": "a" * 300}, timeout=PATIENCE
        )
        assert answer.status_code == 200
        bystander.read_on(20)
    assert bystander.longest_lag <= LONGEST_LAG


def test_a_blocked_event_loop_is_seen(tmp_path: Path) -> None:
    with bystanding(tmp_path) as bystander:
        bystander.loop.call_soon_threadsafe(block, bystander, 3 * LONGEST_LAG)
        bystander.read_on(20)
    assert bystander.longest_lag > 2 * LONGEST_LAG


def block(bystander: Bystander, steps: int) -> None:
    """Keep the event loop busy until the engine has made so many steps."""
    end = bystander.steps + steps
    while bystander.steps < end:
        time.sleep(0.001)


def test_a_text_that_ends_is_seen(tmp_path: Path) -> None:
    with bystanding(tmp_path) as bystander:
        stopped = threading.Event()

        def stop() -> None:
            bystander.server.stop_texts()
            stopped.set()

        bystander.loop.call_soon_threadsafe(stop)
        assert stopped.wait(60)
        with pytest.raises(AssertionError, match="ended"):
            bystander.read_on(1000)
