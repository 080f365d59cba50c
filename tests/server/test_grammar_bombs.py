"""Expensive grammars block neither running streams nor new requests."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from bystander import LONGEST_LAG, Bystander, bystanding
from serving import PATIENCE

from ingot.sampling.grammar import compile as compiling
from ingot.sampling.grammar import state
from ingot.sampling.grammar.limits import LARGEST_SOURCE, GrammarLimits
from unit.sampling.grammar_bombs import BOMBS, crossing

STRICT = GrammarLimits(quick_seconds=0.05, seconds=0.2, patience=100, memory=96 << 20)
ENDLESS = GrammarLimits(
    quick_seconds=0.05, seconds=PATIENCE, patience=10, memory=64 << 30, waiting=12
)


def body(source: str, kind: str = "json_schema") -> dict[str, Any]:
    """A request for two tokens under a grammar."""
    grammar = {"grammar": source} if kind == "gbnf" else {"json_schema": json.loads(source)}
    return {"prompt": "a", "n_predict": 2, "seed": 1, **grammar}


# Made here, since Python that works in a test keeps the server from its turn.
CONTENTS = [
    json.dumps(body(bomb.source, bomb.kind)).encode()
    for bomb in BOMBS.values()
    if bomb.kind in ("gbnf", "json_schema")
]


@pytest.fixture
def strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bystander]:
    """A server with small limits."""
    monkeypatch.setattr(compiling, "GrammarLimits", lambda: STRICT)
    with bystanding(tmp_path) as bystander:
        yield bystander


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bystander]:
    """A server on which a bomb runs until somebody stops it."""
    monkeypatch.setattr(compiling, "GrammarLimits", lambda: ENDLESS)
    with bystanding(tmp_path) as bystander:
        yield bystander


def jobs(bystander: Bystander) -> dict[Any, Any]:
    """The grammars that are being compiled."""
    llm = bystander.server.catalog.default.llm
    assert llm is not None
    return llm.engine._parts.chains._compiler._jobs


def test_the_reader_of_a_stream_does_not_notice_bombs(strict: Bystander) -> None:
    said = {"Content-Type": "application/json"}
    with httpx.Client(base_url=strict.url, timeout=PATIENCE, headers=said) as client:
        for content in CONTENTS:
            answer = client.post("/completion", content=content)
            assert answer.status_code in (200, 400), answer.text
    strict.read_on()
    assert strict.longest_lag <= LONGEST_LAG


def test_a_bomb_is_answered_with_the_limit_that_it_broke(strict: Bystander) -> None:
    post = partial(httpx.post, f"{strict.url}/completion", timeout=PATIENCE)
    answer = post(json=body(crossing(39).source))
    assert answer.status_code == 400
    # Which of the two comes first depends on the machine.
    assert re.search("takes more than (0.2 s|96 MB) to compile", answer.json()["error"]["message"])
    answer = post(json={"prompt": "a", "grammar": "root ::= " + '"a" ' * (LARGEST_SOURCE // 4)})
    assert answer.status_code == 400
    assert f"at most {LARGEST_SOURCE:,} are allowed" in answer.json()["error"]["message"]


def test_nobody_waits_for_bombs(endless: Bystander) -> None:
    """Neither requests without a grammar nor those with another one."""
    count = 12  # more than there are threads for all requests
    with ThreadPoolExecutor(count) as pool, httpx.Client(base_url=endless.url) as gone:
        post = partial(gone.post, "/completion", timeout=PATIENCE)
        bombs = [pool.submit(post, json=body(crossing(39 + i).source)) for i in range(count - 1)]
        assert happens(lambda: len(jobs(endless)) == count - 1)
        plain = {"prompt": "a", "n_predict": 2}
        for asked in (plain, body('{"type": "boolean"}')):
            answer = httpx.post(f"{endless.url}/completion", json=asked, timeout=PATIENCE)
            assert answer.status_code == 200, answer.text
        one_more = pool.submit(post, json=body(crossing(60).source))
        assert happens(lambda: len(jobs(endless)) == count)
        full = httpx.post(f"{endless.url}/completion", json=body("{}"), timeout=PATIENCE)
        assert full.status_code == 429
        assert not any(bomb.done() for bomb in (*bombs, one_more))
        endless.read_on()
        llm = endless.server.catalog.default.llm
        assert llm is not None
        llm.engine._parts.chains.close()  # or the bombs would go on
    assert endless.longest_lag <= LONGEST_LAG


def test_a_bomb_ends_with_its_client(endless: Bystander) -> None:
    content = json.dumps(body(crossing(39).source)).encode()
    url = httpx.URL(endless.url)
    head = f"POST /completion HTTP/1.1\r\nHost: {url.host}:{url.port}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.create_connection((url.host, url.port), PATIENCE) as client:
        client.sendall(head.encode() + content)
        assert happens(lambda: len(jobs(endless)) == 1)
    assert happens(lambda: not jobs(endless))


def test_a_text_whose_tokens_take_too_long_ends_alone(
    strict: Bystander, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_SECONDS", 0.05)
    monkeypatch.setattr(state, "_SECONDS_PER_TOKEN", 0.0)
    asked = body(BOMBS["GBNF: ambiguity"].source, "gbnf") | {"n_predict": 1000, "ignore_eos": True}
    answer = httpx.post(f"{strict.url}/completion", json=asked, timeout=PATIENCE)
    assert answer.status_code == 400
    assert "that a text may take in addition are used up" in answer.json()["error"]["message"]
    strict.read_on()
    assert strict.longest_lag <= LONGEST_LAG


def happens(condition: Callable[[], bool]) -> bool:
    """Wait until something is so; False if it does not happen."""
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        threading.Event().wait(0.02)
    return condition()
