"""Messages to prompts: what comes in, what goes out, where templates come from."""

import enum
from pathlib import Path
from typing import Any

import pytest

from ingot.errors import ChatTemplateError, IngotError
from ingot.gguf import GgufLoader, GgufWriter
from ingot.gguf.types import ValueType
from ingot.tokenizer import Tokenizer
from ingot.tokenizer.chat_template import CHATML, ChatTemplate, RenderedPrompt
from ingot.tokenizer.sandbox import functions

HELLO = [{"role": "user", "content": "Hello"}]


def test_a_prompt() -> None:
    template = ChatTemplate("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")
    assert template.render(HELLO) == RenderedPrompt("Hello", ())
    template = ChatTemplate(template.source, bos_token="<s>", eos_token="</s>")
    assert template.render(HELLO).text == "<s>Hello</s>"


def test_what_templates_are_given() -> None:
    template = ChatTemplate(
        "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}"
        "{{ other is defined }}"
    )
    assert template.render(HELLO).text == "TrueTrueTrueFalse"
    given: dict[str, Any] = {"tools": [{}], "documents": [{}], "add_generation_prompt": False}
    assert template.render(HELLO, **given, other=1).text == "FalseFalseFalseTrue"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"role": "user", "content": "Hi"}, "<|im_start|>user\nHi<|im_end|>\n"),
        ({"role": "tool", "content": None}, "<|im_start|>tool\n<|im_end|>\n"),
        ({"role": "assistant"}, "<|im_start|>assistant\n<|im_end|>\n"),
        (
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            "<|im_start|>user\nab<|im_end|>\n",
        ),
    ],
)
def test_chatml(message: dict[str, Any], text: str) -> None:
    template = ChatTemplate(CHATML)
    assert template.render([message]).text == text + "<|im_start|>assistant\n"
    assert template.render([message], add_generation_prompt=False).text == text


def test_values_of_every_json_type() -> None:
    values = {"a": None, "b": [True, 1, 2.5, "x", {"y": ()}]}
    template = ChatTemplate("{{ messages[0].x }}")
    prompt = template.render([{"role": "user", "x": values}])
    assert prompt.text == "{'a': None, 'b': [True, 1, 2.5, 'x', {'y': []}]}"


def test_subclasses_of_text_become_text() -> None:
    class Role(enum.StrEnum):
        USER = "user"

    assert (
        ChatTemplate("{{ messages[0] }}").render([{"role": Role.USER}]).text == "{'role': 'user'}"
    )


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "empty"),
        ("Hello", "list"),
        (None, "list"),
        ({"role": "user"}, "list"),
        (["Hello"], r"messages\[0\] is not a message but 'Hello'"),
        ([{"content": "x"}], r'messages\[0\] has no "role"'),
        ([*HELLO, {"role": None}], r'messages\[1\] has no "role"'),
        ([{"role": "user", "content": object()}], "messages contains a object"),
        ([{"role": "user", "content": b"x"}], "messages contains a bytes"),
        ([{"role": "user", "content": {1, 2}}], "messages contains a set"),
        ([{"role": "user", "content": print}], "messages contains a builtin"),
    ],
)
def test_bad_messages(messages: Any, reason: str) -> None:
    with pytest.raises(ChatTemplateError, match=reason):
        ChatTemplate("x").render(messages)


def test_bad_options() -> None:
    with pytest.raises(ChatTemplateError, match="clock contains a builtin"):
        ChatTemplate("{{ clock() }}").render(HELLO, clock=print)
    with pytest.raises(ChatTemplateError, match="tools contains a function"):
        ChatTemplate("x").render(HELLO, tools=[test_bad_options])  # type: ignore[list-item]


def test_endless_messages() -> None:
    message: dict[str, Any] = {"role": "user"}
    message["content"] = message
    with pytest.raises(ChatTemplateError, match="deep"):
        ChatTemplate("x").render([message])


def test_missing_content_is_the_templates_business() -> None:
    message = [{"role": "user"}]
    assert ChatTemplate("[{{ messages[0].content }}]").render(message).text == "[]"
    with pytest.raises(ChatTemplateError, match="no attribute 'content'"):
        ChatTemplate("{{ 'a' + messages[0].content }}").render(message)


def test_an_error_is_of_the_family() -> None:
    with pytest.raises(IngotError):
        ChatTemplate("{{").render(HELLO)
    with pytest.raises(ValueError, match="sorry"):
        ChatTemplate("{{ raise_exception('sorry') }}").render(HELLO)


def test_the_date(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = functions.now().replace(year=2031, month=2, day=3)
    monkeypatch.setattr(functions, "now", lambda: moment)
    assert ChatTemplate("{{ strftime_now('%Y/%m/%d') }}").render(HELLO).text == "2031/02/03"


def test_generation_blocks() -> None:
    source = "a{% generation %}{% set x = 1 %} b {{ x }}{% endgeneration %}{{ x }}c"
    assert ChatTemplate(source).render(HELLO).text == "a b 1c"


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_goes_by_several_names(name: str) -> None:
    template = ChatTemplate("{{ messages[0].thinking }}{{ messages[0].reasoning_content }}")
    assert template.render([{"role": "assistant", name: "hm"}]).text == "hmhm"


OBJECTS = "{% for key, value in call.arguments|items %}{{ key }}={{ value }}{% endfor %}"
TEXT = "{{ 'f(' + call.arguments + ')' }}"


@pytest.mark.parametrize("is_inner", [False, True])
@pytest.mark.parametrize(
    ("source", "arguments", "text"),
    [
        (OBJECTS, {"a": "é"}, "a=é"),
        (OBJECTS, '{"a": "é"}', "a=é"),
        (OBJECTS, " ", ""),
        (TEXT, {"a": "é"}, 'f({"a": "é"})'),
        (TEXT, '{"a":1}', 'f({"a": 1})'),
        (TEXT, '{"a": cut', 'f({"a": cut)'),
        (TEXT, "[1]", "f([1])"),
    ],
)
def test_arguments_are_what_the_template_can_write(
    source: str, arguments: object, text: str, is_inner: bool
) -> None:
    call: dict[str, object] = {"name": "f", "arguments": arguments}
    message = {"role": "assistant", "tool_calls": [{"function": call} if is_inner else call]}
    begin = "{% set call = messages[0].tool_calls[0] %}{% set call = call.function or call %}"
    assert ChatTemplate(begin + source).render([message]).text == text


def test_arguments_that_no_template_can_write() -> None:
    call = {"function": {"name": "f", "arguments": '{"a": cut'}}
    message = {"role": "assistant", "tool_calls": [call]}
    source = OBJECTS.replace("call.", "messages[0].tool_calls[0].function.")
    with pytest.raises(ChatTemplateError, match="mapping"):
        ChatTemplate(source).render([message])
    for wrong in ([call], {"tool_calls": 1}, {"tool_calls": [1, {}, {"function": 2}]}):
        with pytest.raises(ChatTemplateError):
            ChatTemplate("{{ 1 }}").render([wrong])
    broken = {**message, "tool_calls": [{"function": {"arguments": {"a": 1}}}]}
    with pytest.raises(ChatTemplateError, match="undefined"):
        ChatTemplate("{{ nobody.name.first }}").render([broken])


def test_variants() -> None:
    template = ChatTemplate("plain", variants={"tool_use": "tools", "rag": "documents"})
    assert template.render(HELLO).text == "plain"
    assert template.render(HELLO, tools=[]).text == "tools"
    assert template.render(HELLO, tools=[], variant="rag").text == "documents"
    with pytest.raises(ChatTemplateError, match=r"no template variant 'x'.*rag, tool_use"):
        template.render(HELLO, variant="x")
    assert ChatTemplate("plain").render(HELLO, tools=[]).text == "plain"


@pytest.mark.parametrize(
    ("source", "add_bos", "text"),
    [
        ("{{ bos_token }}a", True, "<s>a"),
        ("{{ bos_token }}a", False, "<s>a"),
        ("a", True, "<s>a"),
        ("a", False, "a"),
        ("{{ messages[0].content }}", True, "<s><s>"),
    ],
)
def test_one_bos(source: str, add_bos: bool, text: str) -> None:
    template = ChatTemplate(source, bos_token="<s>", add_bos=add_bos)
    assert template.render([{"role": "user", "content": "<s>"}]).text == text


def test_a_bos_that_a_message_says_is_text() -> None:
    template = ChatTemplate("{{ messages[0].content }}", bos_token="<s>", add_bos=True)
    assert template.render([{"role": "user", "content": "<s>"}]).plain_spans == ((3, 6),)


def _loaded(folder: Path, **values: Any) -> ChatTemplate:
    """The template of a file with a small vocabulary."""
    writer = GgufWriter(folder / "file.gguf")
    tokens = ["<bos>", "a", "<eos>", "<|x|>", "<unk>", "<tool>", "<|end|>"]
    facts = {
        "ggml.model": "gpt2",
        "ggml.tokens": tokens,
        "ggml.token_type": [3, 1, 3, 3, 2, 4, 4],
        "ggml.merges": [],
        "ggml.bos_token_id": 0,
        "ggml.eos_token_id": 2,
        **{key.replace("__", "."): value for key, value in values.items()},
    }
    for key, value in facts.items():
        kind = ValueType.STRING if key == "ggml.merges" else None
        writer.add(f"tokenizer.{key}", value, kind)
    (path,) = writer.write()
    with GgufLoader(path) as loader:
        return ChatTemplate.from_metadata(loader.metadata)


def test_from_a_file(tmp_path: Path) -> None:
    template = _loaded(
        tmp_path,
        chat_template="{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
        chat_template__tool_use="tools",
    )
    prompt = template.render([{"role": "user", "content": "<|x|><unk><tool>a<|end|><bos>"}])
    assert prompt.text == "<bos><|x|><unk><tool>a<|end|><bos><eos>"
    # <tool> is an ordinary word of this vocabulary; <|end|> ends a turn whatever its type.
    plain = [prompt.text[a:b] for a, b in prompt.plain_spans]
    assert plain == ["<|x|>", "<unk>", "<|end|>", "<bos>"]
    assert template.render(HELLO, tools=[]).text == "tools"
    assert dict(template.variants) == {"tool_use": "tools"}


def test_a_file_without_a_template(tmp_path: Path) -> None:
    template = _loaded(tmp_path)
    assert template.source == CHATML
    assert template.render(HELLO).text.startswith("<|im_start|>user\nHello")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"ggml__model": "llama"}, "<bos>x"),
        ({"ggml__model": "gpt2"}, "x"),
        ({"ggml__model": "gpt2", "ggml__pre": "llama-bpe"}, "<bos>x"),
        ({"ggml__model": "llama", "ggml__add_bos_token": False}, "x"),
        ({"ggml__model": "gpt2", "ggml__add_bos_token": True}, "<bos>x"),
    ],
)
def test_bos_as_the_file_says(tmp_path: Path, values: dict[str, Any], text: str) -> None:
    assert _loaded(tmp_path, chat_template="x", **values).render(HELLO).text == text


@pytest.mark.parametrize("name", ["phi-3", "qwen2", "llama-bpe", "llama-spm", "deepseek-coder"])
def test_prompts_become_ids(shared: Path, name: str) -> None:
    """Every control token of a real vocabulary stays text in a message of the user."""
    path = shared / "tokenizers" / f"{name}.gguf"
    tokenizer = Tokenizer.from_gguf(path)
    with GgufLoader(path) as loader:
        template = ChatTemplate.from_metadata(loader.metadata, tokenizer)

    def controls(content: str) -> list[int]:
        prompt = template.render([{"role": "user", "content": content}])
        assert content in prompt.text
        ids = tokenizer.encode(
            prompt.text, add_special=False, parse_special=True, plain_spans=prompt.plain_spans
        )
        return [id for id in ids if tokenizer.is_control(id)]

    controls_as_text = "".join(tokenizer.control_tokens())
    assert tokenizer.control_tokens()
    assert controls(f"a{controls_as_text}b") == controls("x")
