"""The special tokens of a vocabulary.

In: the metadata and a way to find a token by its text. Out: the ids of BOS, EOS and similar, all
end-of-generation tokens, and the tokens that are control tokens whatever type the file gives them.
The texts are those that llama.cpp looks for, because files often name only EOS.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ingot.errors import TokenizerError
from ingot.gguf import Metadata

_PREFIX = "tokenizer.ggml."

# Ids that llama.cpp assumes for a kind if the file has none.
_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "llama": {"bos": 1, "eos": 2, "unknown": 0},
    "bert": {"bos": 101, "unknown": 100, "seperator": 102},
    "gpt2": {"bos": 11, "eos": 11},
    "t5": {"eos": 1, "unknown": 2},
    "rwkv": {},
    "gemma4": {},
}
_NAMED = ("bos", "eos", "eot", "eom", "unknown", "seperator")

_ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
)  # fmt: skip

# The tags around the reasoning of an answer.
REASONING_TAGS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))

# Fill-in-the-middle tokens: key in the file, texts (the first one found counts), and whether it
# ends a generation.
_MIDDLE = (
    ("fim_pre", ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>",
                 "▁<PRE>", "<|code_prefix|>", "<|prefix|>"), False),
    ("fim_suf", ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>",
                 "▁<SUF>", "<|code_suffix|>", "<|suffix|>"), False),
    ("fim_mid", ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>",
                 "▁<MID>", "<|code_middle|>", "<|middle|>"), False),
    ("fim_pad", ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"), True),
    ("fim_rep", ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"), True),
    ("fim_sep", ("<|file_sep|>",), True),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NamedIds:
    """The ids in a file, or the defaults of its kind; None if there is none."""

    bos: int | None
    eos: int | None
    eot: int | None
    eom: int | None
    unknown: int | None
    separator: int | None


def named_ids(
    metadata: Metadata, kind: str, vocab_size: int, *, default_bos: bool = True
) -> NamedIds:
    """Read the ids; an id outside the vocabulary counts as missing."""
    found: dict[str, int | None] = {}
    for name in _NAMED:
        default = _DEFAULTS[kind].get(name) if name != "bos" or default_bos else None
        if default is not None and default >= vocab_size:
            default = None
        found[name] = _id_of(metadata, name, vocab_size, default)
    return NamedIds(
        bos=found["bos"],
        eos=found["eos"],
        eot=found["eot"],
        eom=found["eom"],
        unknown=found["unknown"],
        separator=found["seperator"],  # the format's own spelling
    )


def required(value: int | None, name: str) -> int:
    """An id that texts need; `TokenizerError` if it is missing."""
    if value is None:
        raise TokenizerError(
            f"this vocabulary adds a {name} token to texts, "
            f"but the file has no {_PREFIX}{name}_token_id"
        )
    return value


def _id_of(metadata: Metadata, name: str, vocab_size: int, default: int | None) -> int | None:
    value = metadata.integer(f"{_PREFIX}{name}_token_id", default)
    return value if value is not None and 0 <= value < vocab_size else default


@dataclass(frozen=True, slots=True)
class Meanings:
    """The special tokens that are known by their text."""

    ends: frozenset[int]
    controls: frozenset[int]
    middle: Mapping[str, int]  # fill-in-the-middle tokens by their key: fim_pre, fim_suf, ...


def meanings(
    metadata: Metadata, named: NamedIds, vocab_size: int, find: Callable[[str], int | None]
) -> Meanings:
    """Find the end-of-generation tokens and the control tokens by their text."""
    texts = {text: id for text in _ENDS if (id := find(text)) is not None}
    ends, controls = set(texts.values()), set(texts.values())
    found: dict[str, int] = {}
    for key, candidates, ends_generation in _MIDDLE:
        middle = _id_of(metadata, key, vocab_size, None)
        if middle is None:
            middle = next((id for text in candidates if (id := find(text)) is not None), None)
            if middle is None:
                continue
            controls.add(middle)
        found[key] = middle
        if ends_generation:
            ends.add(middle)
    ends.update(id for id in (named.eos, named.eot, named.eom) if id is not None)
    # gpt-oss and Solar write it between the messages of a turn, not at its end.
    calls = texts.keys() & {"<|call|>", "<|calls|>"}
    if calls and texts.keys() & {"<|return|>", "<|flush|>"}:
        ends.discard(texts.get("<|end|>", -1))
    # An HTML tag in vocabularies with other end tokens (Gemma 4, PLaMo).
    if "<|tool_response>" in texts or find("<|plamo:eos|>") is not None:
        ends.discard(texts.get("</s>", -1))
        controls.discard(texts.get("</s>", -1))
    return Meanings(
        ends=frozenset(ends), controls=frozenset(controls), middle=MappingProxyType(found)
    )
