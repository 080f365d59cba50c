"""The metrics and states of several replicas as one."""

import json
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ingot.ray.call import call_of
from ingot.ray.joined import joined
from ingot.ray.status import joined_history, joined_models, joined_status
from ingot.ray.sums import labelled, summed

TEXT = """\
# HELP ingot_running Requests that are running.
# TYPE ingot_running gauge
ingot_running{{model="m"}} {running}
# HELP ingot_steps_total Steps of the model.
# TYPE ingot_steps_total counter
ingot_steps_total{{model="m"}} {steps}
# HELP ingot_batch_size Requests.
# TYPE ingot_batch_size gauge
ingot_batch_size{{model="m"}} {size}
# HELP llamacpp:n_tokens_max Tokens.
# TYPE llamacpp:n_tokens_max gauge
llamacpp:n_tokens_max {longest}
# HELP ingot_request_seconds Seconds.
# TYPE ingot_request_seconds histogram
ingot_request_seconds_bucket{{path="/",le="1.0"}} {steps}
ingot_request_seconds_bucket{{path="/",le="+Inf"}} {steps}
ingot_request_seconds_count{{path="/"}} {steps}
ingot_request_seconds_sum{{path="/"}} 0.5
"""
A = TEXT.format(running=1, steps=10, size=2.0, longest=70)
B = TEXT.format(running=3, steps=5, size=4.0, longest=50)


def values(text: bytes) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_sums() -> None:
    found = values(summed({"a": A, "b": B}))
    assert found["ingot_running", "m"] == 4
    assert found["ingot_steps_total", "m"] == 15
    assert found["ingot_batch_size", "m"] == 3  # an average
    assert found["llamacpp:n_tokens_max",] == 70
    assert found["ingot_request_seconds_bucket", "+Inf", "/"] == 15
    assert found["ingot_request_seconds_sum", "/"] == 1.0
    assert values(summed({"a": A})) == values(A.encode())


def test_one_by_one() -> None:
    found = values(labelled({"a": A, "b": B}))
    assert found["ingot_running", "a", "m"] == 1
    assert found["ingot_running", "b", "m"] == 3


def test_responses() -> None:
    def answer(status: int, text: str) -> list[dict[str, Any]]:
        start = {"type": "http.response.start", "status": status, "headers": [(b"X", b"1")]}
        return [start, {"type": "http.response.body", "body": text.encode()}]

    def asked(path: str, query: bytes = b"") -> Any:
        scope = {"type": "http", "method": "POST", "path": path, "query_string": query}
        return call_of(scope, b"")

    both = [("a", answer(200, A)), ("b", answer(200, B))]
    start, body = joined(asked("/metrics"), both)
    assert values(body["body"])["ingot_running", "m"] == 4
    assert dict(start["headers"])[b"content-length"] == str(len(body["body"])).encode()
    refused = joined(asked("/metrics"), [both[0], ("b", answer(401, "no"))])
    assert (refused[0]["status"], refused[1]["body"]) == (401, b"no")
    _, apart = joined(asked("/metrics", b"by=replica"), both)
    assert ("ingot_running", "a", "m") in values(apart["body"])
    assert joined(asked("/models/load"), both) == both[0][1]
    states = [("a", answer(200, json.dumps(STATE))), ("b", answer(200, json.dumps(OTHER)))]
    assert json.loads(joined(asked("/api/status"), states)[1]["body"])["uptime_seconds"] == 9.0


LOAD = {"running": 1, "slots": 32, "waiting": 0, "cache_blocks": 100, "cache_blocks_held": 10}
MODEL = {"name": "m", "loaded": True, "context": 64, "step_seconds": 0.5, "gpu": None, **LOAD}
CLOSED = {"name": "n", "loaded": False, **dict.fromkeys(LOAD, 0)}
STATE = {
    "uptime_seconds": 9.0,
    "models": [{**MODEL, "requests": [{"id": "x"}]}, CLOSED],
    "ended": [{"id": "old", "age": 8.0}, {"id": "new", "age": 1.0}],
}
OTHER = {
    "uptime_seconds": 3.0,
    "models": [
        {**MODEL, "running": 4, "step_seconds": 0.1, "requests": [{"id": "y"}]},
        {**CLOSED, "loaded": True, "running": 2},
    ],
    "ended": [{"id": "middle", "age": 5.0}],
}


def test_states_for_the_dashboard() -> None:
    found = joined_status({"a": STATE, "b": OTHER})
    first, second = found["models"]
    assert first["replicas"] == [{"name": "a", **LOAD}, {"name": "b", **LOAD, "running": 4}]
    assert [each["name"] for each in second["replicas"]] == ["b"]
    assert (first["running"], first["context"], first["step_seconds"]) == (5, 64, 0.5)
    assert (first["loaded"], first["gpu"]) == (True, None)
    assert [each["id"] for each in first["requests"]] == ["x", "y"]
    assert (second["loaded"], second["running"]) == (True, 2)
    assert [each["id"] for each in found["ended"]] == ["old", "middle", "new"]
    alone = joined_status({"a": STATE})
    assert [len(model.pop("replicas")) for model in alone["models"]] == [1, 0]
    assert alone == STATE


def test_histories_for_the_dashboard() -> None:
    def sample(age: float, steps: int) -> dict[str, Any]:
        return {"age": age, "models": {"m": {"steps": steps}}}

    ours = {"samples": [sample(3.1, 1), sample(2.1, 2), sample(1.1, 3)]}
    theirs = {"samples": [sample(1.9, 10), sample(0.9, 20)]}
    assert joined_history({"a": ours, "b": theirs}) == {
        "samples": [sample(2.1, 12), sample(1.1, 23)]
    }
    assert joined_history({"a": ours}) == ours


def test_open_models() -> None:
    early, late = "2026-11-17T00:00:00Z", "2026-11-17T00:10:00Z"
    a, b = {"name": "a", "expires_at": early}, {"name": "b", "expires_at": early}
    longer = {"name": "a", "expires_at": late}
    assert joined_models({"x": {"models": [a]}, "y": {"models": [longer, b]}}) == {
        "models": [longer, b]
    }
    assert joined_models({"x": {"models": []}, "y": {"models": [b]}}) == {"models": [b]}
