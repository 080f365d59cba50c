"""Templates of ollama, translated to Jinja, render what ollama renders."""

import pytest

from ingot.errors import ChatTemplateError
from ingot.tokenizer.chat_template import ChatTemplate
from ingot.tokenizer.go_template import jinja_from_go

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi {{ .System }} {% raw %}"}
ANSWER = {"role": "assistant", "content": "Hello"}
BYE = {"role": "user", "content": "Bye"}
TOOL = {"type": "function", "function": {"name": "now", "parameters": {}}}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "now", "arguments": {"zone": 1}}}],
}

# One exchange, as older models have it.
CHATML = """{{ if .System }}<|im_start|>system
{{ .System }}<|im_end|>
{{ end }}{{ if .Prompt }}<|im_start|>user
{{ .Prompt }}<|im_end|>
{{ end }}<|im_start|>assistant
{{ .Response }}<|im_end|>
"""
GEMMA = """<start_of_turn>user
{{ if .System }}{{ .System }} {{ end }}{{ .Prompt }}<end_of_turn>
<start_of_turn>model
{{ .Response }}<end_of_turn>
"""

# Messages, tools and variables, as newer models have it.
LLAMA = """{{- if or .System .Tools }}<|start_header_id|>system<|end_header_id|>
{{- if .System }}

{{ .System }}
{{- end }}
{{- if .Tools }}

You may call tools.
{{- end }}<|eot_id|>
{{- end }}
{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 }}
{{- if eq .Role "user" }}<|start_header_id|>user<|end_header_id|>
{{- if and $.Tools $last }}

Functions:
{{ range $.Tools }}
{{- . }}
{{ end }}
{{ .Content }}<|eot_id|>
{{- else }}

{{ .Content }}<|eot_id|>
{{- end }}{{ if $last }}<|start_header_id|>assistant<|end_header_id|>

{{ end }}
{{- else if eq .Role "assistant" }}<|start_header_id|>assistant<|end_header_id|>
{{- if .ToolCalls }}
{{ range .ToolCalls }}
{"name": "{{ .Function.Name }}", "parameters": {{ .Function.Arguments }}}{{ end }}
{{- else }}

{{ .Content }}
{{- end }}{{ if not $last }}<|eot_id|>{{ end }}
{{- end }}
{{- end }}"""


def rendered(template: str, *messages: dict[str, object], **options: object) -> str:
    return ChatTemplate(jinja_from_go(template)).render(messages, **options).text  # type: ignore[arg-type]


def test_one_exchange() -> None:
    assert rendered(CHATML, USER) == (
        f"<|im_start|>user\n{USER['content']}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert rendered(CHATML, SYSTEM, USER, ANSWER, BYE) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        f"<|im_start|>user\n{USER['content']}<|im_end|>\n"
        "<|im_start|>assistant\nHello<|im_end|>\n"
        "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )
    assert rendered(GEMMA, SYSTEM, BYE) == (
        "<start_of_turn>user\nBe brief. Bye<end_of_turn>\n<start_of_turn>model\n"
    )


def test_an_answer_that_is_continued() -> None:
    text = rendered(CHATML, BYE, ANSWER)
    assert text == "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\nHello"


def test_messages() -> None:
    assert rendered(LLAMA, SYSTEM, BYE, ANSWER, BYE) == (
        "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_tools() -> None:
    text = rendered(LLAMA, BYE, CALL, BYE, tools=[TOOL])
    assert text == (
        "<|start_header_id|>system<|end_header_id|>\n\nYou may call tools.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "now", "parameters": '
        '{"zone": 1}}<|eot_id|>'
        "<|start_header_id|>user<|end_header_id|>\n\nFunctions:\n"
        '{"type": "function", "function": {"name": "now", "parameters": {}}}\n\nBye<|eot_id|>'
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ range .Messages }}{{ .Role }},{{ end }}", "user,assistant,"),
        ("{{ range $i, $m := .Messages }}{{ $i }}{{ $m.Content }} {{ end }}", "0Bye 1Hello "),
        ("{{ range .Messages }}{{ else }}none{{ end }}", ""),
        ("{{ $x := 1 }}{{ range .Messages }}{{ $x = 2 }}{{ end }}{{ $x }}", "2"),
        ("{{ range .Messages }}{{ break }}{{ end }}ok", "ok"),
        (
            "{{ range .Messages }}{{ if eq .Role `user` `a` }}u{{ continue }}{{ end }}-{{ end }}",
            "u-",
        ),
        ("{{ with .Messages }}{{ len . }}{{ end }}", "2"),
        ("{{ with .System }}x{{ else }}y{{ len .Messages }}{{ end }}", "y2"),
        ('{{ if and .Messages (not .System) }}a\\n{{ "b\\n" }}{{ end }}', "a\\nb\n"),
        ("a  {{- /* a comment */ -}}  b{{ .System }}{{ len .Messages }}", "ab2"),
        ("{{ if .IsThinkSet }}t{{ end }}{{ if gt (len .Messages) 1 }}more{{ end }}", "more"),
        ("😀 é {{ json .System }}", '😀 é ""'),
        ("{{ `}}` }}{{ len .Messages }}", "}}2"),
        ("{{ .Messages | len }}", "2"),
        ("{-{{ len .Messages }}-}", "{-2-}"),
    ],
)
def test_parts_of_the_language(template: str, text: str) -> None:
    assert rendered(template, BYE, ANSWER) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ printf .Prompt }}",
        '{{ define "x" }}{{ end }}',
        "{{ if .Prompt }}",
        "{{ end }}",
        "{{ else }}",
        "{{ .Unknown }}",
        "{{ }}",
        "{{ ( }}",
        "{{ .Prompt ) }}",
        "{{ $x.y := 1 }}",
        "{{ @ }}",
        '{{ "\\q" }}',
        "{{ if }}",
        "{{ . }}",
        "{{ if .Prompt }}" * 50,
        "{{ " + "(" * 10_000 + " }}",
        "{{" * 30_000,
        "{{ .Prompt",
        "{{ .Messages.Content.Content }}",
        "x" * 300_000,
    ],
)
def test_what_has_no_counterpart_is_refused(template: str) -> None:
    with pytest.raises(ChatTemplateError):
        jinja_from_go(template)


def test_content_in_parts() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "By"}, {"text": "e"}]}
    assert rendered(LLAMA, parts) == rendered(LLAMA, BYE)
    assert rendered(CHATML, parts) == rendered(CHATML, BYE)
