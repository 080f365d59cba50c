"""Runs with tools, by a model whose answers a logits processor writes."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from data.chat_templates.cases import families
from ingot import LLM, ChatTemplateError, ConfigError, IncompleteTextError, ToolError, ToolRun
from ingot.reply import read_tools
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


def paint(color: Literal["red", "blue"], coats: Literal[1, 2]) -> str:
    """Paint the wall."""
    return f"{color} {coats}"


def wait() -> str:
    """Wait until it is dry."""
    return "dry"


class Beginning:
    """A processor that makes a text begin like this; the model continues it."""

    def __init__(self, llm: LLM, text: str) -> None:
        self._left = llm.tokenize(text, add_special=False)

    def __call__(self, _: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        if self._left:
            token = self._left.pop(0)
            logits[token] = 1e9


def check_painted(text: str) -> None:
    given = json.loads(text)
    assert given.keys() == {"color", "coats"}
    assert given["color"] in ("red", "blue")
    assert given["coats"] in (1, 2)


def test_a_call_can_be_required(llm: LLM) -> None:
    tools = [paint, wait]
    for seed in range(3):
        done = llm.chat("?", tools=tools, tool_choice="required", seed=seed, max_tokens=2000)
        calls = llm.parse_reply(done, tools=tools).tool_calls
        assert calls
        for each in calls:
            if each.name == "paint":
                check_painted(each.arguments)
        (named,) = llm.parse_reply(
            asyncio.run(llm.achat("?", tools=tools, tool_choice="paint", seed=seed)), tools=tools
        ).tool_calls
        check_painted(named.arguments)


def test_tools_that_may_not_be_called_are_not_offered(llm: LLM) -> None:
    plain = llm.chat("?", max_tokens=1)
    hidden = llm.chat("?", tools=[paint], tool_choice="none", max_tokens=1)
    offered = llm.chat("?", tools=[paint], max_tokens=1)
    assert hidden.timings.prompt_tokens == plain.timings.prompt_tokens
    assert offered.timings.prompt_tokens > plain.timings.prompt_tokens
    for tools, choice, reason in (
        ([paint], "wait", "'wait', which is not one of the tools"),
        ([], "required", "there are no tools"),
        ([paint], {"type": "auto"}, "tool_choice is"),
    ):
        with pytest.raises(ToolError, match=reason):
            llm.chat("?", tools=tools, tool_choice=choice, max_tokens=1)


@pytest.mark.parametrize("strict", [True, False])
def test_a_strict_tool_constrains_its_arguments(llm: LLM, strict: bool) -> None:
    tools = [{**read_tools([paint])[0].as_mapping()["function"], "strict": strict}]
    begun = Beginning(llm, "Well, <tool_call>")
    done = llm.chat("?", tools=tools, processors=begun, seed=1, max_tokens=200, stop="</tool_call>")
    assert done.text.startswith("Well, <tool_call>")
    if strict:
        given = json.loads(done.text.removeprefix("Well, <tool_call>"))
        assert given["name"] == "paint"
        check_painted(json.dumps(given["arguments"]))
    else:
        assert '"name": "paint"' not in done.text


def test_a_strict_tool_that_cannot_be_enforced_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, template=TEMPLATES["llama3"], keys={"llama.context_length": 4096})
    with LLM(path, threads=1) as other:
        other.chat("?", tools=[{"name": "f"}], max_tokens=1)
        assert not caplog.records
        other.chat("?", tools=[{"name": "f", "strict": True}], max_tokens=1)
        assert "'strict' of the tool 'f' was ignored" in caplog.text


def test_an_answer_with_a_schema_may_be_a_call(llm: LLM) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    schema |= {"additionalProperties": False}
    asked: dict[str, Any] = {"tools": [paint], "schema": schema, "seed": 1, "max_tokens": 2000}
    answer = llm.chat("?", processors=Beginning(llm, "{"), **asked)
    assert answer.parsed == {"a": 1}
    called = llm.chat("?", processors=Beginning(llm, "<"), **asked)
    assert called.parsed is None
    assert llm.parse_reply(called, tools=[paint]).tool_calls[0].name == "paint"


def test_a_run_may_have_to_begin_with_a_call(llm: LLM) -> None:
    fields: dict[str, Any] = {"tool_choice": "paint", "seed": 1, "max_tokens": 100}
    done = llm.run_tools("?", [paint, wait], **fields)
    _, asked, result, *_ = done.messages
    check_painted(asked["tool_calls"][0]["function"]["arguments"])
    assert result["content"] in ("red 1", "red 2", "blue 1", "blue 2")
    assert asyncio.run(llm.arun_tools("?", [paint], **fields)).messages[1]["tool_calls"]


def test_only_the_context_limits_a_run(llm: LLM) -> None:
    city, answer = "R" * 200, "Warm. " * 40
    script = Script(llm, call(city=city), answer)
    done = llm.run_tools("?", [get_weather], processors=script)
    assert json.loads(done.messages[2]["content"])["city"] == city
    assert done.text == answer
    assert not done.completion.is_cut
    script = Script(llm, answer)
    cut = llm.run_tools("?", [get_weather], processors=script, n_predict=100)
    assert cut.completion.is_cut


def test_a_text_that_fills_the_context_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, template=TEMPLATES["qwen2_5"], keys={"llama.context_length": 1024})
    with LLM(path, threads=1) as small:
        done = small.run_tools("?", [wait], processors=Script(small, "a" * 1000))
        assert done.completion.finish_reason == "context"
        script = Script(small, call(city="a" * 1000))
        with pytest.raises(IncompleteTextError, match="while it called a tool"):
            small.run_tools("?", [get_weather], processors=script)


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
