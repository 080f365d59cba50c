"""Chat templates: from messages to the prompt format that a model was trained on.

In: messages (and tools, documents, options) as JSON values. Out: a `RenderedPrompt` with the text,
and the spans of it that look like control tokens but come from a message. The template is
untrusted code from the file, so it runs in the `sandbox`. This module does not know token ids.

The prompt contains every special token that the model should see, so encode it with

    tokenizer.encode(prompt.text, add_special=False, parse_special=True,
                     plain_spans=prompt.plain_spans)

BOS comes once: if the vocabulary wants one (`add_bos`) and the template did not write it, it is
put in front.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from ingot.errors import ChatTemplateError
from ingot.gguf import Metadata
from ingot.tokenizer.build import TokenType
from ingot.tokenizer.sandbox import CompiledTemplate, ControlTokens, Limits, Placeholders
from ingot.tokenizer.tokenizer import Tokenizer

# For files without a template.
CHATML = """\
{%- for message in messages -%}
    {{- '<|im_start|>' + message['role'] + '\\n' -}}
    {%- if message['content'] is string -%}
        {{- message['content'] -}}
    {%- elif message['content'] -%}
        {%- for part in message['content'] -%}
            {{- part['text'] -}}
        {%- endfor -%}
    {%- endif -%}
    {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""

_KEY = "tokenizer.chat_template"

# Words that some templates turn into a control token: '<|' + message.role + '|>'.
_ROLES = frozenset({"system", "user", "assistant", "tool", "developer", "function", "model"})
# Keys for the reasoning of a message; templates look for the first or the second.
_REASONING = ("reasoning_content", "thinking", "reasoning")
_MAX_DEPTH = 60
_LIMITS = Limits()

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt, and the spans in which the text of a control token is plain text."""

    text: str
    plain_spans: tuple[Span, ...]


class ChatTemplate:
    """The chat template of a model, for any number of threads."""

    def __init__(
        self,
        source: str,
        *,
        variants: Mapping[str, str] = MappingProxyType({}),
        bos_token: str = "",
        eos_token: str = "",
        add_bos: bool = False,
        control_tokens: Iterable[str] = (),
        limits: Limits = _LIMITS,
    ) -> None:
        """`variants`: templates for other uses, such as `tool_use`, by name."""
        self.source = source
        self.variants = MappingProxyType(dict(variants))
        self.bos_token = bos_token
        self.eos_token = eos_token
        self._add_bos = add_bos
        self._tokens = ControlTokens((*control_tokens, bos_token, eos_token))
        self._limits = limits
        self._templates: dict[str, _Compiled] = {}  # by variant, compiled when first used

    @classmethod
    def from_metadata(
        cls, metadata: Metadata, tokenizer: Tokenizer | None = None, source: str | None = None
    ) -> "ChatTemplate":
        """The template of a GGUF file, or ChatML if it has none.

        Pass the tokenizer of the file if there is one already. It knows more control tokens than
        the file lists. `source` is a template to be used instead of the file's.
        """
        if tokenizer is None:
            tokenizer = Tokenizer.from_metadata(metadata)
        tokens = metadata.strings("tokenizer.ggml.tokens")
        bos, eos = tokenizer.bos_id, tokenizer.eos_id
        variants = {
            key.removeprefix(f"{_KEY}."): metadata.string(key)
            for key in metadata
            if key.startswith(f"{_KEY}.")
        }
        return cls(
            metadata.string(_KEY, CHATML) if source is None else source,
            variants=variants if source is None else {},
            bos_token="" if bos is None else tokens[bos],
            eos_token="" if eos is None else tokens[eos],
            add_bos=metadata.boolean("tokenizer.ggml.add_bos_token", tokenizer.adds_bos),
            control_tokens=(*tokenizer.control_tokens(), *_unknown_tokens(metadata)),
        )

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        variant: str | None = None,
        **extra: object,
    ) -> RenderedPrompt:
        """Turn messages into a prompt.

        `extra` are variables of the template, such as `enable_thinking=False`. With tools, the
        variant `tool_use` is used if there is one and no other is named. Arguments of tool calls
        may be objects or JSON text: a template gets objects, or JSON text if it fails with objects.
        """
        if variant is None and tools is not None and "tool_use" in self.variants:
            variant = "tool_use"
        compiled = self._compiled(variant)
        given = {
            "messages": _with_arguments(messages, _as_object),
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
            **extra,
        }
        try:
            return self._rendered(compiled, given)
        except ChatTemplateError:
            as_text = _with_arguments(given["messages"], _as_text)
            if as_text == given["messages"]:
                raise
            with suppress(ChatTemplateError):  # the first error says more
                return self._rendered(compiled, {**given, "messages": as_text})
            raise

    def _rendered(self, compiled: "_Compiled", given: Mapping[str, object]) -> RenderedPrompt:
        texts: list[str] = []
        values = {name: _copy(name, value, _collector(texts)) for name, value in given.items()}
        values["messages"] = _checked_messages(values["messages"])
        words: Iterable[str] = ()
        if compiled.completes_tokens:
            spoken = {text.strip() for text in texts} - compiled.template.literals - _ROLES
            words = filter(self._tokens.can_hold, spoken)
        placeholders = Placeholders(
            self._tokens, texts, compiled.template.written, frozenset(words)
        )
        if placeholders.active:
            values = {
                name: _copy(name, value, placeholders.substitute) for name, value in values.items()
            }
        rendered = compiled.template.run(
            {"bos_token": self.bos_token, "eos_token": self.eos_token, **values},
            self._limits.for_input(sum(map(len, texts))),
            placeholders,
        )
        if self._add_bos and not rendered.startswith(self.bos_token):
            rendered = self.bos_token + rendered
        return RenderedPrompt(*placeholders.restore(rendered))

    def _compiled(self, variant: str | None) -> "_Compiled":
        name = variant or ""
        if name not in self._templates:
            if variant is not None and variant not in self.variants:
                names = ", ".join(sorted(self.variants)) or "none"
                raise ChatTemplateError(
                    f"the model has no template variant {variant!r}; it has: {names}"
                )
            template = CompiledTemplate(self.source if variant is None else self.variants[variant])
            completes = self._tokens.completed_after(template.literals)
            self._templates[name] = _Compiled(template, completes)
        return self._templates[name]


@dataclass(frozen=True, slots=True)
class _Compiled:
    template: CompiledTemplate
    # Whether it writes the beginning of a control token, which a message could complete.
    completes_tokens: bool


def _unknown_tokens(metadata: Metadata) -> list[str]:
    """Tokens of type unknown, which encoding finds like control tokens."""
    types = metadata.array("tokenizer.ggml.token_type", None)
    if types is None:
        return []
    tokens = metadata.strings("tokenizer.ggml.tokens")
    (found,) = (types == TokenType.UNKNOWN).nonzero()
    return [tokens[int(identity)] for identity in found]


def _collector(texts: list[str]) -> Callable[[str], str]:
    def collect(text: str) -> str:
        texts.append(text)
        return text

    return collect


def _copy(name: str, value: object, change: Callable[[str], str], depth: int = 0) -> object:
    """Copy a JSON value, with every text in it changed."""
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        return change(str.__str__(value))
    if depth > _MAX_DEPTH:
        raise ChatTemplateError(f"{name} is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {
            _copy(name, key, change, depth + 1): _copy(name, item, change, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_copy(name, item, change, depth + 1) for item in value]
    raise ChatTemplateError(
        f"{name} contains a {type(value).__name__}; only JSON values can be part of a prompt"
    )


def _with_arguments(messages: object, change: Callable[[object], object]) -> object:
    """The messages with changed arguments of tool calls; invalid parts stay unchanged."""
    if not isinstance(messages, list | tuple):
        return messages
    made = []
    for message in messages:
        calls = message.get("tool_calls") if isinstance(message, Mapping) else None
        if isinstance(calls, list | tuple):
            made.append({**message, "tool_calls": [_changed(call, change) for call in calls]})
        else:
            made.append(message)
    return made


def _changed(call: object, change: Callable[[object], object]) -> object:
    if not isinstance(call, Mapping):
        return call
    function = call.get("function")
    if isinstance(function, Mapping) and "arguments" in function:
        return {**call, "function": {**function, "arguments": change(function["arguments"])}}
    if "arguments" in call:
        return {**call, "arguments": change(call["arguments"])}
    return call


def _as_object(arguments: object) -> object:
    if not isinstance(arguments, str):
        return arguments
    with suppress(ValueError, RecursionError):
        made = json.loads(arguments.strip() or "{}")
        return made if isinstance(made, dict) else arguments
    return arguments


def _as_text(arguments: object) -> object:
    if isinstance(arguments, str):
        return arguments
    with suppress(TypeError, ValueError, RecursionError):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments


def _checked_messages(messages: object) -> list[dict[str, object]]:
    if not isinstance(messages, list):
        raise ChatTemplateError("messages must be a list of messages")
    if not messages:
        raise ChatTemplateError("messages is empty; pass at least one message")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise ChatTemplateError(f"messages[{index}] is not a message but {message!r:.60}")
        if not isinstance(message.get("role"), str):
            raise ChatTemplateError(f'messages[{index}] has no "role"')
    return [_with_reasoning(message) for message in messages]


def _with_reasoning(message: dict[str, object]) -> dict[str, object]:
    """A message with its reasoning, if any, under the keys that templates use."""
    given = (message[name] for name in _REASONING if message.get(name) is not None)
    reasoning = next(given, None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}
