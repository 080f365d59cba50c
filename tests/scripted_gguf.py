"""A model file that says given texts: the chat template chooses one, the weights write it.

Every piece of a text is a token of its own, so a model that only knows which token follows which
(one-hot embeddings, a permutation as the output matrix, layers that add nothing) writes the text.
The template ends the prompt with a control token, the beginning of the text whose cue occurs in the
last message. No grammar is needed, so any client can have it call tools.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from ingot.gguf import GgmlType, GgufWriter, ValueType
from ingot.tokenizer import TokenType
from tiny_llama import Sizes, vocabulary

_SHORTEST = 3  # characters of a piece, so that a text comes in several

# Its tags are the format of reasoning and of tool calls.
_TEMPLATE = """\
{#- <think></think> -#}
{%- if tools %}<tool_call>{{ tools | tojson }}{% endif -%}
{%- for message in messages %}<|start|>{{ message.role }}: {{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call | tojson }}</tool_call>{% endfor -%}
<|end|>{% endfor -%}
{%- set said = messages[-1].role + ': ' + (messages[-1].content or '') -%}
CHOICE"""


def write_scripted_gguf(
    path: Path,
    scripts: Mapping[str, str],
    *,
    otherwise: str = "Hello!",
    context: int = 65536,
    whole: Collection[str] = (),
) -> Path:
    """A model that says the text of the first cue in `role: content` of the last message.

    The texts of the cues in `whole` are one token. They can be said under a grammar, too: after the
    first token, a grammar may force others than those of the text.
    """
    texts = [*scripts.values(), otherwise]
    shortest = [len(text) if cue in whole else _SHORTEST for cue, text in scripts.items()]
    marks = [f"<|say{number}|>" for number in range(len(texts))]
    tokens, following = _tokens(texts, marks, [*shortest, _SHORTEST])
    controls = {"<|start|>", "<|end|>", *marks}
    types = [TokenType.CONTROL if token in controls else TokenType.NORMAL for token in tokens]
    writer = GgufWriter(path)
    size = -(-len(tokens) // 64) * 64
    sizes = Sizes(width=size, layers=1, heads=size // 32, kv_heads=1, context=context)
    for key, value in {
        "general.architecture": "llama",
        **{f"llama.{key}": value for key, value in sizes.metadata().items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.eos_token_id": tokens.index("<|end|>"),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": _template(list(scripts), marks),
    }.items():
        writer.add(key, value)
    writer.add("tokenizer.ggml.tokens", tokens, ValueType.STRING)
    writer.add("tokenizer.ggml.token_type", [int(kind) for kind in types], ValueType.INT32)
    writer.add("tokenizer.ggml.merges", ["a b"], ValueType.STRING)
    output = np.zeros((len(tokens), size), np.float16)
    for token, after in enumerate(following):
        output[after, token] = 1
    shapes = sizes.shapes(len(tokens)) | {"output.weight": output.shape}
    for name, shape in shapes.items():
        if name == "output.weight":
            writer.add_tensor(name, output, GgmlType.F16)
        elif name == "token_embd.weight":
            writer.add_tensor(name, np.eye(*shape, dtype=np.float16), GgmlType.F16)
        elif len(shape) == 1:
            writer.add_tensor(name, np.ones(shape, np.float32))
        else:
            writer.add_tensor(name, np.zeros(shape, np.float16), GgmlType.F16)
    return writer.write()[0]


# How models write tool calls: between tags, as JSON alone, or in a fence.
CALL_FORMS = {
    "tagged": "<tool_call>\n{}\n</tool_call>",
    "bare": "{}",
    "fenced": "```json\n{}\n```",
}


def tool_call(name: str, form: str = "tagged", /, **arguments: object) -> str:
    """The text of a tool call."""
    return CALL_FORMS[form].format(json.dumps({"name": name, "arguments": arguments}))


def _tokens(texts: list[str], marks: list[str], shortest: list[int]) -> tuple[list[str], list[int]]:
    """The vocabulary, and which token follows each; what follows nothing ends the text."""
    letters = vocabulary()[:256]
    tokens = [*letters, "<|start|>", "<|end|>", *marks]
    end = tokens.index("<|end|>")
    following = [end] * len(tokens)
    used = set(tokens)
    for text, mark, least in zip(texts, marks, shortest, strict=True):
        last = tokens.index(mark)
        for piece in _pieces("".join(letters[byte] for byte in text.encode()), used, least):
            tokens.append(piece)
            following.append(end)
            following[last] = last = len(tokens) - 1
    return tokens, following


def _pieces(text: str, used: set[str], shortest: int) -> list[str]:
    """Cut a text into pieces that no text has had; `used` gets them."""
    pieces: list[str] = []
    start = 0
    while start < len(text):
        stop = start + shortest
        while text[start:stop] in used and stop < len(text):
            stop += 1
        if text[start:stop] in used or len(text) - stop < shortest:
            stop = len(text)
        while text[start:stop] in used:  # the rest of another text: join it to what is before
            start -= len(used_piece := pieces.pop())
            used.discard(used_piece)
        pieces.append(text[start:stop])
        used.add(text[start:stop])
        start = stop
    return pieces


def _template(cues: list[str], marks: list[str]) -> str:
    choice = ""
    for number, (cue, mark) in enumerate(zip(cues, marks, strict=False)):
        choice += f"{{%- {'elif' if number else 'if'} {json.dumps(cue)} in said -%}}{mark}"
    other = marks[-1]
    choice += f"{{%- else -%}}{other}{{%- endif -%}}" if cues else other
    return _TEMPLATE.replace("CHOICE", choice)
