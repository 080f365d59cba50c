"""Where calls go, and what identifies the beginning of a prompt."""

import json
from typing import Any

import pytest

from ingot.ray.call import BLOCK, Route, call_of, prefix_keys


def call(path: str, body: Any = None, method: str = "POST") -> Any:
    scope = {"type": "http", "method": method, "path": path, "headers": [], "app": object()}
    return call_of(scope, b"" if body is None else json.dumps(body).encode())


@pytest.mark.parametrize(
    ("method", "path", "body", "route"),
    [
        ("POST", "/v1/chat/completions", {"messages": []}, Route.PREFIX),
        ("GET", "/v1/models", None, Route.PREFIX),
        ("GET", "/health", None, Route.PREFIX),
        ("POST", "/v1/files", None, Route.HOME),
        ("GET", "/v1/batches/batch_1", None, Route.HOME),
        ("POST", "/v1/messages/batches", {"requests": []}, Route.HOME),
        ("POST", "/v1/messages", {"messages": []}, Route.PREFIX),
        ("POST", "/v1/messages", {"thread": {"type": "create"}}, Route.HOME),
        ("POST", "/v1/responses", {"input": "x"}, Route.HOME),
        ("POST", "/v1/responses", {"input": "x", "store": False}, Route.PREFIX),
        (
            "POST",
            "/v1/responses",
            {"input": "x", "store": False, "previous_response_id": "r"},
            Route.HOME,
        ),
        ("GET", "/v1/responses/resp_1", None, Route.HOME),
        ("POST", "/completion", {"prompt": "x", "id_slot": 0}, Route.HOME),
        ("POST", "/completion", {"prompt": "x", "id_slot": -1}, Route.PREFIX),
        ("POST", "/slots/0", None, Route.HOME),
        ("POST", "/models/load", {"model": "m"}, Route.EACH),
        ("POST", "/lora-adapters", [], Route.EACH),
        ("GET", "/lora-adapters", None, Route.PREFIX),
        ("POST", "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "b"}, Route.EACH),
        ("POST", "/v1/unload_lora_adapter", {"lora_name": "a"}, Route.EACH),
        ("GET", "/metrics", None, Route.EACH),
        ("GET", "/api/status", None, Route.EACH),
        ("GET", "/api/ps", None, Route.EACH),
        ("POST", "/api/chat", {"messages": [{"role": "user", "content": "x"}]}, Route.PREFIX),
        ("POST", "/api/generate", {"prompt": "x", "keep_alive": 0}, Route.PREFIX),
        ("POST", "/api/generate", {"model": "m", "keep_alive": 0}, Route.EACH),
    ],
)
def test_routes(method: str, path: str, body: Any, route: Route) -> None:
    assert call(path, body, method).route is route


def test_only_plain_values_travel() -> None:
    assert set(call("/health").scope) == {"type", "method", "path", "headers"}


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_bodies_that_are_none_have_no_keys(body: bytes) -> None:
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
    assert call_of(scope, body).keys == ()


def test_a_conversation_shares_the_keys_of_its_beginning() -> None:
    def keys(*contents: str, **fields: object) -> tuple[int, ...]:
        messages = [{"role": "user", "content": each} for each in contents]
        found: tuple[int, ...] = call("/v1/chat/completions", {"messages": messages, **fields}).keys
        return found

    first, second = keys("a" * 900), keys("a" * 900, "b" * 900, temperature=0.5)
    assert len(first) == 7
    assert second[:6] == first[:6]
    assert len(second) > 12
    assert not set(keys("a" * 900, model="other")) & set(first)  # another cache
    assert keys("b" * 900)[1:] != first[1:]


def test_a_key_stands_for_all_before_it() -> None:
    a, b = prefix_keys(b"a" * BLOCK + b"x" * BLOCK), prefix_keys(b"b" * BLOCK + b"x" * BLOCK)
    assert len(a) == len(b) == 2
    assert not set(a) & set(b)
    assert prefix_keys(b"a" * (BLOCK - 1)) == ()
    assert len(prefix_keys(b"a" * BLOCK * 10_000)) == 512
