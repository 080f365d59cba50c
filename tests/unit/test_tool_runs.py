"""Runs with tools, by a model whose answers a logits processor writes."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from data.chat_templates.cases import families
from ingot import LLM, ChatTemplateError, ConfigError, IncompleteTextError, ToolError, ToolRun
from tiny_llama import write_tiny_llama

TEMPLATES = {family.name: family.source for family in families()}


def call(**arguments: object) -> str:
    given = json.dumps({"name": "get_weather", "arguments": arguments})
    return f"<tool_call>\n{given}\n</tool_call>"


def get_weather(city: str, days: int = 1) -> dict[str, object]:
    """Look up the weather."""
    return {"city": city, "days": days, "weather": "warm"}


class Script:
    """A processor that makes each request write the next of some texts."""

    def __init__(self, llm: LLM, *texts: str) -> None:
        (end,) = llm.tokenizer.eog_ids
        self._left = [[*llm.tokenize(text, add_special=False), end] for text in texts]
        self._now: list[int] = []

    def __call__(self, _: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        if not self._now:
            self._now = self._left.pop(0)
        logits[:] = -1e9
        logits[self._now.pop(0)] = 0.0


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path: Path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_tiny_llama(path, template=TEMPLATES["qwen2_5"], keys={"llama.context_length": 8192})
    with LLM(path, threads=1) as opened:
        yield opened


def run(llm: LLM, *texts: str, **fields: Any) -> ToolRun:
    fields = {"max_tokens": 300, **fields}
    return llm.run_tools("Rome?", [get_weather], processors=Script(llm, *texts), **fields)


def test_functions_are_called_until_the_model_answers(llm: LLM) -> None:
    done = run(llm, "I look.\n" + call(city="Rome") + "\n" + call(city="Bari", days=2), "Warm.")
    assert (done.text, str(done), done.completion.text) == ("Warm.", "Warm.", "Warm.")
    question, asked, first, second, answer = done.messages
    assert question == {"role": "user", "content": "Rome?"}
    assert asked["content"] == "I look."
    assert [each["function"]["arguments"] for each in asked["tool_calls"]] == [
        '{"city": "Rome"}',
        '{"city": "Bari", "days": 2}',
    ]
    assert [first["tool_call_id"], second["tool_call_id"]] == [
        each["id"] for each in asked["tool_calls"]
    ]
    assert json.loads(second["content"]) == {"city": "Bari", "days": 2, "weather": "warm"}
    assert answer == {"role": "assistant", "content": "Warm."}


def test_a_coroutine_awaits_async_functions(llm: LLM) -> None:
    async def get_weather(city: str) -> str:
        """Look up the weather."""
        await asyncio.sleep(0)
        return f"warm in {city}"

    script = Script(llm, call(city="Rome"), "Warm.")
    running = llm.arun_tools("Rome?", [get_weather], processors=script, max_tokens=300)
    done = asyncio.run(running)
    assert (done.text, done.messages[2]["content"]) == ("Warm.", "warm in Rome")
    with pytest.raises(ToolError, match="arun_tools"):
        llm.run_tools(
            "Rome?", [get_weather], processors=Script(llm, call(city="Rome")), max_tokens=300
        )


def test_the_model_is_told_of_arguments_that_do_not_fit(llm: LLM) -> None:
    done = run(llm, call(town="Rome"), call(city="Rome"), "Warm.")
    assert "no parameter 'town'" in json.loads(done.messages[2]["content"])["error"]
    assert json.loads(done.messages[4]["content"])["weather"] == "warm"


def test_errors_of_a_function_come_through(llm: LLM) -> None:
    def get_weather(city: str) -> str:
        raise ZeroDivisionError(city)

    with pytest.raises(ZeroDivisionError, match="Rome"):
        llm.run_tools("?", [get_weather], processors=Script(llm, call(city="Rome")), max_tokens=99)


def test_runs_that_do_not_end_are_errors(llm: LLM) -> None:
    with pytest.raises(ToolError, match="after 2 rounds"):
        run(llm, call(city="Rome"), call(city="Rome"), max_rounds=2)
    with pytest.raises(IncompleteTextError, match="while it called a tool"):
        run(llm, call(city="Rome"), max_tokens=60)
    with pytest.raises(ConfigError, match="max_rounds"):
        run(llm, max_rounds=0)


def test_a_chat_may_be_a_text_or_parts(llm: LLM) -> None:
    prompt = llm.chat_prompt([{"role": "user", "content": "a\nb"}])
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert llm.chat_prompt("a\nb") == prompt
    assert llm.chat_prompt([{"role": "user", "content": parts}]) == prompt
    image = {"type": "image_url", "image_url": {"url": "x"}}
    with pytest.raises(ChatTemplateError, match="'image_url'; only text"):
        llm.chat_prompt([{"role": "user", "content": [image]}])
    done = llm.chat("hello", max_tokens=3, processors=Script(llm, "ab"))
    assert (str(done), done.parsed) == ("ab", None)


def test_calls_in_answers_are_parsed_with_functions(llm: LLM) -> None:
    script = Script(llm, call(city="Rome"))
    done = llm.chat("Rome?", tools=[get_weather], max_tokens=300, processors=script)
    (found,) = llm.parse_reply(done, tools=[get_weather]).tool_calls
    assert (found.name, found.arguments) == ("get_weather", '{"city": "Rome"}')
    script = Script(llm, call(city="Rome"))
    cut = llm.chat("Rome?", tools=[get_weather], max_tokens=20, processors=script)
    assert llm.parse_reply(cut, tools=[get_weather]).content == ""
