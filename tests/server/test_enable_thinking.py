"""`enable_thinking`: whether the model may reason, under the name that each API has for it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripted import Ask, scripted_model, scripted_server

MESSAGES = {"messages": [{"role": "user", "content": "?"}]}
EMPTY = "<think>\n\n</think>\n\n"  # what the template writes for a model that is not to reason
ALLOWED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # What is asked, and what allows and forbids reasoning.
    "/v1/chat/completions": (
        {**MESSAGES, "max_tokens": 1},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ),
    "/v1/messages": (
        {**MESSAGES, "max_tokens": 1},
        {"thinking": {"type": "enabled"}},
        {"thinking": {"type": "disabled"}},
    ),
    "/api/chat": (
        {"model": "any", **MESSAGES, "stream": False, "options": {"num_predict": 1}},
        {"think": True},
        {"think": False},
    ),
    "/api/generate": (
        {"model": "any", "prompt": "?", "stream": False, "options": {"num_predict": 1}},
        {"think": True},
        {"think": False},
    ),
}
Served = Callable[[Ask], Any]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = scripted_model(tmp_path_factory.mktemp("thinking"), "qwen3")
    with scripted_server(model) as server:
        yield server


def post(served: Served, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = served(lambda client: client.post(path, json=body))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert "warnings" not in found
    return found


def prompt_tokens(answer: dict[str, Any]) -> int:
    """The tokens of the prompt, which are its bytes and control tokens."""
    if "prompt_eval_count" in answer:
        return int(answer["prompt_eval_count"])
    usage = answer["usage"]
    if "prompt_tokens" in usage:
        return int(usage["prompt_tokens"])
    return int(usage["input_tokens"] + usage["cache_read_input_tokens"])


@pytest.mark.parametrize("path", ALLOWED)
def test_the_prompt_of_a_model_that_is_not_to_reason_says_so(served: Served, path: str) -> None:
    body, allows, forbids = ALLOWED[path]
    plain, allowed, forbidden = (
        prompt_tokens(post(served, path, {**body, **fields})) for fields in ({}, allows, forbids)
    )
    assert (allowed, forbidden) == (plain, plain + len(EMPTY))


def test_the_prompt_can_be_looked_at(served: Served) -> None:
    plain = post(served, "/apply-template", MESSAGES)["prompt"]
    fields = {"chat_template_kwargs": {"enable_thinking": False}}
    assert post(served, "/apply-template", MESSAGES | fields)["prompt"] == plain + EMPTY


def test_an_answer_with_a_schema_does_not_begin_with_forbidden_reasoning(served: Served) -> None:
    """The first character of the tag is likely, but the grammar leaves it out."""
    (token,) = post(served, "/tokenize", {"content": "<"})["tokens"]
    schema = {"name": "letter", "schema": {"enum": ["a"]}}
    body = {
        **MESSAGES,
        "max_tokens": 12,
        "logit_bias": {str(token): 100},
        "response_format": {"type": "json_schema", "json_schema": schema},
    }
    forbidden = {"chat_template_kwargs": {"enable_thinking": False}}
    said = [
        post(served, "/v1/chat/completions", body | fields)["choices"][0]["message"]
        for fields in ({}, forbidden)
    ]
    assert [message["content"] for message in said] == ["", '"a"']
    assert [bool(message.get("reasoning_content")) for message in said] == [True, False]
