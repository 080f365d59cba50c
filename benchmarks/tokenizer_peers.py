"""The tokenizers to compare with, under one small interface.

A GGUF file comes in; objects with `encode` (text to ids) come out. llama.cpp reads the file itself;
for the `tokenizers` package, `write_tokenizer_json` first writes a tokenizer.json from the
vocabulary. `missing()` reports packages that are not installed. Nothing here is timed.
"""

import ctypes
import importlib
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ingot.gguf import GgufLoader
from ingot.tokenizer import Tokenizer

Encode = Callable[[str], list[int]]
SPACE = "\u2581"
CONTROL, USER_DEFINED = 3, 4
INSTALL = {
    "llama.cpp": ("llama_cpp", "pip install llama-cpp-python==0.3.36"),
    "tokenizers": ("tokenizers", "pip install tokenizers"),
}


def missing() -> dict[str, str]:
    """Name the peers that are not installed, each with the command that installs it."""
    return {
        name: command
        for name, (module, command) in INSTALL.items()
        if importlib.util.find_spec(module) is None
    }


def ingot(model: Path) -> Encode:
    tokenizer = Tokenizer.from_gguf(model)
    return lambda text: tokenizer.encode(text, add_special=False)


def llama_cpp(model: Path) -> Encode:
    lc: Any = importlib.import_module("llama_cpp")
    quiet = lc.llama_log_callback(lambda *_: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    parameters = lc.llama_model_default_params()
    parameters.vocab_only = True
    handle = lc.llama_model_load_from_file(str(model).encode(), parameters)
    vocab = lc.llama_model_get_vocab(handle)

    def encode(text: str, keep: object = (quiet, handle)) -> list[int]:
        del keep
        data = text.encode()
        ids = (ctypes.c_int32 * (len(data) + 8))()
        count = lc.llama_tokenize(vocab, data, len(data), ids, len(ids), False, False)
        return ids[:count]

    return encode


def hugging_face(tokenizer_json: Path) -> Encode:
    tokenizers: Any = importlib.import_module("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_json))

    def encode(text: str) -> list[int]:
        # The batch call without offsets is the fastest way in; one text keeps it to one thread.
        ids: list[int] = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    return encode


def write_tokenizer_json(model: Path, target: Path) -> None:
    """Describe a GGUF vocabulary to the `tokenizers` package: byte-level BPE or SentencePiece."""
    with GgufLoader(model) as file:
        metadata = file.metadata
        tokens = list(metadata.strings("tokenizer.ggml.tokens"))
        types = metadata.array("tokenizer.ggml.token_type").tolist()
        if metadata.string("tokenizer.ggml.model") == "gpt2":
            merges = [tuple(m.split(" ")) for m in metadata.strings("tokenizer.ggml.merges")]
            parts = byte_level_parts(metadata.string("tokenizer.ggml.pre"))
        else:
            scores = metadata.array("tokenizer.ggml.scores").tolist()
            merges = merges_from_scores(tokens, scores)
            parts = sentencepiece_parts()
    ids = {token: number for number, token in enumerate(tokens)}
    added = [
        {"id": number, "content": tokens[number], "special": kind == CONTROL, **PLAIN_TOKEN}
        for number, kind in enumerate(types)
        if kind in (CONTROL, USER_DEFINED)
    ]
    model_part = {"type": "BPE", "vocab": ids, "merges": merges, **parts.pop("model")}
    whole = {"version": "1.0", "added_tokens": added, "model": model_part, **parts}
    target.write_text(json.dumps(whole))


PLAIN_TOKEN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def byte_level_parts(pre_tokenizer: str) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    if pre_tokenizer != "smollm":
        raise SystemExit(f"no description of the pre-tokenizer {pre_tokenizer!r} for `tokenizers`")
    digits = {"type": "Digits", "individual_digits": True}
    steps = [digits, {**byte_level, "use_regex": True}]
    return {
        "model": {},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "decoder": {**byte_level, "use_regex": True},
    }


def sentencepiece_parts() -> dict[str, Any]:
    return {
        "model": {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"},
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
    }


def merges_from_scores(tokens: list[str], scores: list[float]) -> list[tuple[str, ...]]:
    """List every way to make a token of two others, best token first, as merges."""
    known = {token: number for number, token in enumerate(tokens)}
    merges: list[tuple[str, ...]] = []
    for token in sorted(known, key=lambda token: -scores[known[token]]):
        splits = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        pairs = [pair for pair in splits if pair[0] in known and pair[1] in known]
        merges += sorted(pairs, key=lambda pair: (known[pair[0]], known[pair[1]]))
    return merges
