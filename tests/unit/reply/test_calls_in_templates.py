"""Calls that a chat template writes are read back: models were trained on what it writes."""

import json
from typing import Any

import pytest

from data.chat_templates.cases import families
from ingot.reply import parse_reply, read_tools, style_of
from ingot.tokenizer.chat_template import ChatTemplate

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "text": {"type": "string"},
        "line": {"type": "integer"},
        "share": {"type": "number"},
        "force": {"type": "boolean"},
        "mode": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"type": "object"},
    },
}
ARGUMENTS: list[dict[str, Any]] = [
    {"path": "5", "text": '  if a < b:\n\treturn "é"\n', "line": -3, "share": 0.5, "force": True},
    {"mode": None, "force": False, "tags": ["a", "b\n"], "place": {"lat": 1.5, "of": {"k": "v"}}},
    {"text": "", "mode": "null?"},
    {},
]
TOOLS = read_tools([{"name": "write", "parameters": SCHEMA}])
QUESTION = {"role": "user", "content": "Write it down."}
BY_NAME = {family.name: family for family in families()}


@pytest.mark.parametrize("in_words", [False, True], ids=["as objects", "as JSON"])
@pytest.mark.parametrize(
    "name", ["qwen2_5", "qwen3", "qwen3_coder", "glm4_5", "kimi_k2", "minimax_m2"]
)
def test_calls_come_back(name: str, in_words: bool) -> None:
    family = BY_NAME[name]
    template = ChatTemplate(family.source, bos_token=family.bos, eos_token=family.eos)
    calls = [
        {
            "id": f"functions.write:{number}",
            "type": "function",
            "function": {
                "name": "write",
                "arguments": json.dumps(arguments) if in_words else arguments,
            },
        }
        for number, arguments in enumerate(ARGUMENTS)
    ]
    answer = {"role": "assistant", "content": "So be it.", "tool_calls": calls}
    tools = [tool.as_mapping() for tool in TOOLS]
    asked = template.render([QUESTION], tools=tools).text
    rendered = template.render([QUESTION, answer], tools=tools, add_generation_prompt=False).text
    assert rendered.startswith(asked.rstrip("\n"))
    text = rendered[len(asked) :].strip().removesuffix("<|im_end|>").removesuffix("[e~[")
    style = style_of(family.source)
    reply = parse_reply(text, style, TOOLS, begins_in_reasoning=style.is_opened_by(asked))
    assert [json.loads(call.arguments) for call in reply.tool_calls] == ARGUMENTS
    assert reply.content.strip() == "So be it."
    if name == "kimi_k2":
        assert [call.id for call in reply.tool_calls] == [call["id"] for call in calls]
