"""`thinking.budget_tokens`: a model that would reason forever has to answer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from in_process import asgi_client

from tiny_llama import CHAT, write_tiny_llama

# What the prompt ends with, and what is behind it: reasoning is open already.
TEMPLATE = f"{CHAT}{{% if add_generation_prompt %}}<think>{{% endif %}}{{# </think> #}}"
LETTER = ord("a")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("thinking") / "tiny.gguf", template=TEMPLATE)


def ask(path: Path, where: str = "/v1/messages", **fields: object) -> dict[str, Any]:
    """The answer of a model that writes one letter only, as far as it may."""
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 20,
        "logit_bias": {str(LETTER): 1000.0},
        **fields,
    }

    async def answer() -> dict[str, Any]:
        async with asgi_client(path) as client:
            response = await client.post(where, json=body)
            assert response.status_code == 200, response.text
            return response.json()

    return asyncio.run(answer())


def told(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(block["type"], block[block["type"]]) for block in answer["content"]]


def test_reasoning_without_a_budget_takes_all_tokens(path: Path) -> None:
    answer = ask(path, thinking={"type": "enabled"})
    assert told(answer) == [("thinking", "a" * 20)]
    assert answer["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("budget", [1, 5])
def test_the_answer_begins_when_the_budget_is_spent(path: Path, budget: int) -> None:
    answer = ask(path, thinking={"type": "enabled", "budget_tokens": budget})
    letters = 20 - len("</think>")
    assert told(answer) == [("thinking", "a" * budget), ("text", "a" * (letters - budget))]
    assert answer["usage"]["output_tokens"] == 20


def test_chat_completions_have_the_budget_too(path: Path) -> None:
    fields = {"thinking": {"type": "enabled", "budget_tokens": 5}}
    (choice,) = ask(path, "/v1/chat/completions", **fields)["choices"]
    assert choice["message"]["reasoning_content"] == "a" * 5


def test_an_answer_of_a_form_comes_behind_it(path: Path) -> None:
    form = {"type": "json_schema", "schema": {"type": "string", "maxLength": 2, "minLength": 2}}
    answer = ask(
        path,
        thinking={"type": "enabled", "budget_tokens": 3},
        output_config={"format": form},
    )
    assert told(answer) == [("thinking", "aaa"), ("text", '"aa"')]
    assert answer["stop_reason"] == "end_turn"
