"""Timings and prompt progress at OpenAI's endpoints, as llama-server gives them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripted import Ask, events_in, script, scripted_model, scripted_server

Served = Callable[[Ask], Any]
LONG = "word " * 120  # more than one chunk of a prompt: the tokens are bytes
ASK: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": LONG}]},
    "/v1/completions": {"prompt": LONG},
    "/v1/responses": {"input": LONG},
    "/completion": {"prompt": LONG},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with scripted_server(scripted_model(tmp_path_factory.mktemp("timings"), "qwen2_5")) as server:
        yield server


def ask(served: Served, where: str, **fields: object) -> Any:
    response = served(lambda http: http.post(where, json={**ASK[where], **fields}))
    assert response.status_code == 200, response.text
    assert "warnings" not in response.text
    return events_in(response.text) if fields.get("stream") else response.json()


@pytest.mark.parametrize("where", ASK)
def test_an_answer_has_timings(served: Served, where: str) -> None:
    timings = ask(served, where, **script("abcdef"))["timings"]
    assert timings["predicted_n"] == 6
    assert timings["prompt_n"] + timings["cache_n"] >= len(LONG)
    assert timings["predicted_per_second"] > 0


@pytest.mark.parametrize("where", ASK)
def test_a_stream_has_timings_at_its_end_or_with_every_token(served: Served, where: str) -> None:
    events = ask(served, where, **script("abcdef"), stream=True)
    last = events[-1].get("response", events[-1])
    assert last["timings"]["predicted_n"] == 6
    assert not any("timings" in event for event in events[:-1])
    events = ask(served, where, **script("abcdef"), stream=True, timings_per_token=True)
    counts = [event["timings"]["predicted_n"] for event in events if "timings" in event]
    assert len(counts) > 1
    assert counts == sorted(counts)
    assert counts[-1] == 6


@pytest.mark.parametrize("where", ASK)
def test_a_stream_tells_the_progress_of_the_prompt(served: Served, where: str) -> None:
    asked = {**script("abc"), "stream": True, "cache_prompt": False}
    if where != "/completion":
        del asked["cache_prompt"]
    events = ask(served, where, **asked, return_progress=True)
    told = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    processed = [each["processed"] for each in told]
    assert processed == sorted(processed)
    assert told[0]["processed"] == told[0]["cache"]
    assert told[-1]["processed"] == told[-1]["total"] >= len(LONG)
    assert not any("prompt_progress" in event for event in ask(served, where, **asked))
