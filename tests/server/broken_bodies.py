"""Invalid bodies of many kinds, the same ones for the same seed.

Each begins as a body that an endpoint can answer; then fields are replaced, left out or doubled,
bytes are cut, changed or encoded otherwise, or the headers say that it is something else. Some
fields become lists, depths and numbers one below, at and one beyond a limit of the server.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ingot.server.body_limits import (
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_NUMBER_LENGTH,
    MAX_PROMPTS,
    MAX_SHORT_LIST,
    MAX_TOKEN_IDS,
    MAX_TOOLS,
    MAX_VALUES,
)

_CHAT = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 2,
    "temperature": 0.5,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    "stop": ["x"],
    "logit_bias": {"5": 1.0},
    "stream": False,
    "seed": 1,
}
_COMPLETION = {
    "prompt": ["a", [5, "b"]],
    "n_predict": 2,
    "temperature": 0.5,
    "n_probs": 2,
    "stop": ["x"],
    "samplers": ["top_k", "temperature"],
    "logit_bias": [[5, 1.0], ["b", False]],
    "grammar": 'root ::= "a"',
    "id_slot": 0,
    "response_fields": ["content"],
    "dry_sequence_breakers": ["\n"],
    "stream": False,
    "seed": 1,
}
_MESSAGES = {
    "model": "tiny",
    "max_tokens": 2,
    "system": [{"type": "text", "text": "s"}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "bye"},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto"},
    "stop_sequences": ["x"],
    "thinking": {"type": "disabled"},
    "metadata": {"user_id": "u"},
    "temperature": 0.5,
}
_RESPONSES = {
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    "instructions": "be brief",
    "max_output_tokens": 2,
    "temperature": 0.5,
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    "text": {"format": {"type": "json_schema", "name": "x", "schema": {}}},
    "store": False,
    "stream": False,
}
_OLLAMA = {
    "model": "tiny",
    "stream": False,
    "options": {"num_predict": 2, "temperature": 0.5, "stop": ["x"], "num_ctx": 8},
    "keep_alive": "5m",
    "format": {"type": "object"},
    "think": False,
    "logprobs": True,
    "top_logprobs": 1,
}
# What endpoints can answer; the last is for all others.
_BODIES: Mapping[str, Any] = {
    "/api/chat": {
        **_OLLAMA,
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            {"role": "tool", "tool_name": "f", "content": "1"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    },
    "/api/generate": {**_OLLAMA, "prompt": "a", "system": "s", "context": [5, 6]},
    "/api/embed": {"model": "tiny", "input": ["a", "b"], "truncate": True, "dimensions": 4},
    "/api/embeddings": {"model": "tiny", "prompt": "a"},
    "/api/show": {"model": "tiny", "verbose": True},
    "/api/pull": {"model": "tiny", "stream": False},
    "/pooling": {"input": ["a", "b"]},
    "/score": {"text_1": "a", "text_2": ["b", "c"]},
    "/v1/responses": _RESPONSES,
    "/v1/responses/input_tokens": _RESPONSES,
    "/v1/completions": {
        "prompt": "a",
        "max_tokens": 2,
        "logprobs": 1,
        "echo": True,
        "n": 1,
        "best_of": 1,
        "suffix": None,
        "stop": "x",
        "stream": False,
    },
    "/v1/messages": _MESSAGES,
    "/v1/messages/count_tokens": _MESSAGES,
    "/v1/embeddings": {"input": ["a", "b"], "encoding_format": "float", "dimensions": 4},
    "/completion": _COMPLETION,
    "/completions": _COMPLETION,
    "/infill": {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "c"}]},
    "/tokenize": {"content": "a", "add_special": True, "with_pieces": True},
    "/detokenize": {"tokens": [5, 6]},
    "/embedding": {"content": "a", "embd_normalize": 2, "pooling": "mean"},
    "/embeddings": {"input": [5, 6], "embd_normalize": 0},
    "/lora-adapters": [{"id": 0, "scale": 1.0}],
    "/slots/{id_slot}": {"filename": "x"},
    "": _CHAT,
}
_RERANK = {"query": "a", "documents": ["b", "c"], "top_n": 1}

_DEEP = 3000
_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e308, -1e308, 5e-324, 2**31, 2**32, 2**53, 2**63,
    2**64, -(2**63), 10**40, "", "a", "\x00", "\ud800", "a\udfff", "🍮" * 50, "x" * 5000, "<|end|>",
    "null", "5", "-1", "../x", "true", [], {}, [[]], [{}], {"": ""}, [None], [1.5], ["a"], [5, "a"],
    [-1], [10**9], [True], [[5]], ["\ud800"], {"a": {"b": [1]}}, {"type": "object"},
    {"type": "string", "pattern": "("}, {"$ref": "#"}, {"$ref": "http://x/y"}, [0] * 600,
    ["a"] * 300, {str(n): n for n in range(300)}, 'root ::= root', "root ::= [", "{{ 1 / 0 }}",
)  # fmt: skip
# Numbers and texts that no encoder writes.
_RAW = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"9" * 5000, b"01", b"+1", b"1.", b".5",
    b"0x10", b"'a'", b'"\\x"', b'"\\ud800"', b'"\xff"', b'"\n"', b"tru", b"undefined", b"[1,]", b"",
    b"[" * _DEEP, b"[" * _DEEP + b"]" * _DEEP, b'{"a":' * _DEEP + b"1" + b"}" * _DEEP,
    b'"' + b"a" * 100_000 + b'"', b"{}{}", b"/* */ 1", b"1 // x",
)  # fmt: skip
_ENTRIES = (
    b"5", b"-1", b"97", b'"a"', b'""', b"{}", b"[]", b"[5]", b"1.5", b"null",
    b'{"type":"text","text":"a"}', b'{"role":"user","content":"a"}', b'["a",1]', b'{"text":"c"}',
)  # fmt: skip
# The larger ones are rare: each takes as long as hundreds of small bodies.
_MOST = (MAX_SHORT_LIST, MAX_TOOLS, MAX_PROMPTS, MAX_ITEMS, MAX_TOKEN_IDS, MAX_VALUES)
_HOW_OFTEN = (60, 20, 10, 6, 2, 2)
_TYPES = (
    None, "", "text/plain", "application/xml", "application/x-www-form-urlencoded",
    "multipart/form-data", "multipart/form-data; boundary=x", "application/json; charset=utf-16",
    "application/json; charset=nonsense", "application/octet-stream", "APPLICATION/JSON", "json",
    "application/vnd.api+json", "application/json, text/html", ";", "application/\xff",
)  # fmt: skip


@dataclass(frozen=True)
class BrokenBody:
    """A request that something is wrong with."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    ends_early: bool = False  # the client goes before all of it is there

    def __repr__(self) -> str:
        return f"{self.path} {dict(self.headers)} {self.body[:300]!r} early={self.ends_early}"


def broken_bodies(paths: list[str], seed: int, count: int) -> Iterator[BrokenBody]:
    """So many of them, for endpoints at these paths."""
    random = Random(seed)
    for _ in range(count):
        path = random.choice(paths)
        yield _broken(random, path)


def _broken(random: Random, path: str) -> BrokenBody:
    given = copy.deepcopy(_BODIES.get(path, _RERANK if "rerank" in path else _BODIES[""]))
    url = path.replace("{id_slot}", random.choice(["0", "3", "99", "-1", "x", "%00"]))
    if "slots" in path:
        url += "?action=" + random.choice(["save", "restore", "erase", "", "%ff", "save&action=x"])
    headers = {"content-type": "application/json"}
    if isinstance(given, dict) and random.random() < 0.2:
        given["stream"] = True
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        given = _with_change(random, given)
    body = json.dumps(given).encode()
    match random.randrange(12):
        case 0:
            body = _with_raw(random, body, random.choice(_RAW))
        case 8 if random.random() < 0.3:
            body = _with_raw(random, body, _near_a_limit(random))
        case 1:
            body = body[: random.randrange(len(body) + 1)]
        case 2:
            body = _with_bytes(random, body)
        case 3:
            body = body.decode().encode(random.choice(["utf-16", "utf-32", "utf-8-sig", "utf-7"]))
        case 4:
            body = random.choice([*_RAW, b"null", b"[]", b"5", b'"a"', b"true"])
        case 5:
            kind = random.choice(_TYPES)
            headers = {} if kind is None else {"content-type": kind}
        case 6:
            headers["content-encoding"] = random.choice(["gzip", "br", "nonsense"])
        case 7:
            return BrokenBody(url, body[: len(body) // 2], headers, ends_early=True)
    return BrokenBody(url, body, headers)


def _odd(random: Random) -> Any:
    return copy.deepcopy(random.choice(_ODD))


def _with_change(random: Random, given: Any) -> Any:
    """Change one thing in a body."""
    if not isinstance(given, (dict, list)) or not given or random.random() < 0.03:
        return _odd(random)
    keys: list[Any] = list(given) if isinstance(given, dict) else list(range(len(given)))
    key = random.choice(keys)
    inner = given[key]
    if isinstance(inner, (dict, list)) and inner and random.random() < 0.5:
        given[key] = _with_change(random, inner)
        return given
    match random.randrange(5):
        case 0:
            del given[key]
        case 1 if isinstance(given, dict):
            given[random.choice(["x", "", "model", "stream", "n", "\ud800", "n_cmpl"])] = _odd(
                random
            )
        case _:
            given[key] = _odd(random)
    return given


def _near_a_limit(random: Random) -> bytes:
    """A list, a depth or a number that has about as much as is allowed."""
    beside = random.choice([-1, 0, 1])
    match random.randrange(6):
        case 0:
            depth = MAX_DEPTH + beside
            return random.choice(
                [b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth]
            )
        case 1:
            return random.choice([b"9", b"0."]) + b"9" * (MAX_NUMBER_LENGTH - 2 + beside)
        case _:
            most = random.choices(_MOST, _HOW_OFTEN)[0]
            return b"[" + b",".join([random.choice(_ENTRIES)] * (most + beside)) + b"]"


def _with_raw(random: Random, body: bytes, raw: bytes) -> bytes:
    """Put bytes in the place of a value."""
    places = [at for at, byte in enumerate(body) if byte in b":,["]
    at = random.choice(places) + 1 if places else 0
    ends = [end for end in range(at, len(body)) if body[end] in b",}]"]
    return body[:at] + raw + body[ends[0] if ends else len(body) :]


def _with_bytes(random: Random, body: bytes) -> bytes:
    """Change, add or repeat some bytes."""
    made = bytearray(body)
    for _ in range(random.randrange(1, 6)):
        at = random.randrange(len(made) + 1)
        match random.randrange(3):
            case 0 if at < len(made):
                made[at] = random.randrange(256)
            case 1:
                made.insert(at, random.choice(b'\x00\xff"{}[],:\\0 \n'))
            case _:
                made[at:at] = made[at : at + 20]
    return bytes(made)
