"""Requests made to keep a server busy: a bystander reads on meanwhile."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from bystander import LONGEST_LAG, Bystander, bystanding
from serving import PATIENCE

from ingot.server.body_limits import MAX_DEPTH, MAX_TOKEN_IDS, MAX_VALUES

LARGEST = 16 << 20  # bytes, the server's limit
LONG = 3_000_000  # characters of a text that is tokenized, for which the tiny model takes a second


@pytest.fixture(scope="module")
def bystander(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bystander]:
    with bystanding(tmp_path_factory.mktemp("bombs")) as reader:
        yield reader


def body(**fields: bytes) -> bytes:
    """An object whose values are JSON already."""
    return b"{" + b",".join(b'"%s":%s' % (name.encode(), it) for name, it in fields.items()) + b"}"


def many(entry: bytes, size: int = LARGEST) -> bytes:
    """A list of the same entry, of so many bytes."""
    count = (size - 1000) // (len(entry) + 1)
    return b"[" + (entry + b",") * (count - 1) + entry + b"]"


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def spread(entry: bytes) -> bytes:
    """As many entries as a body may have values."""
    return b"[" + b",".join([entry] * (MAX_VALUES - 100)) + b"]"


_MESSAGE = b'[{"role":"user","content":%s}]'
_TEXT_PART = b'{"type":"text","text":"a"}'
_BOMBS = {
    "a megabyte of wrong ids": ("/completion", body(prompt=many(b"-1", 1_000_000))),
    "texts": ("/v1/completions", body(prompt=many(b'"a"', 15_000_000))),
    "texts to embed": ("/v1/embeddings", body(input=many(b'"a"'))),
    "texts to embed, llama": ("/embedding", body(content=many(b'"a"'))),
    "wrong ids as text": ("/detokenize", body(tokens=many(b"-1"))),
    "parts": ("/v1/chat/completions", body(messages=_MESSAGE % many(_TEXT_PART))),
    "wrong parts": ("/v1/chat/completions", body(messages=_MESSAGE % many(b"1"))),
    "blocks": ("/v1/messages", body(max_tokens=b"1", messages=_MESSAGE % many(_TEXT_PART))),
    "wrong blocks": ("/v1/messages", body(max_tokens=b"1", messages=_MESSAGE % many(b"{}"))),
    "tools": ("/v1/chat/completions", body(messages=_MESSAGE % b'"a"', tools=many(b"{}"))),
    "breakers": ("/completion", body(prompt=b'"a"', dry_sequence_breakers=many(b"1"))),
    "samplers": ("/completion", body(prompt=b'"a"', samplers=many(b"1"))),
    "stops": ("/v1/completions", body(prompt=b'"a"', stop=many(b"1"))),
    "documents": ("/rerank", body(query=b'"a"', documents=many(b"1"))),
    "items": ("/v1/responses", body(input=many(b"{}"))),
    "adapters": ("/lora-adapters", many(b"{}")),
    "unknown names": ("/completion", body(prompt=b'"a"', other=many(b"{}"))),
    "long numbers": ("/completion", body(prompt=many(b"9" * 4000))),
    "depth": ("/completion", body(prompt=nested(LARGEST // 4))),
    "no JSON": ("/completion", b"[" + b"1" * LARGEST),
    # Within the limits of values: parsed, validated, and refused or answered.
    "most ids": ("/completion", body(prompt=spread(b"5"))),
    "most wrong ids": ("/completion", body(prompt=spread(b"-1"))),
    "most texts": ("/completion", body(prompt=spread(b'"a"'))),
    "most objects": ("/completion", body(prompt=spread(b"{}"))),
    "most lists": ("/v1/completions", body(prompt=spread(b"[]"))),
    "most floats": ("/v1/embeddings", body(input=spread(b"1.5"))),
    "most wrong biases": (
        "/v1/completions",
        body(prompt=b'"a"', logit_bias=json.dumps(dict.fromkeys(map(hex, range(70_000)))).encode()),
    ),
    "ten thousand wrong biases": (
        "/v1/completions",
        body(prompt=b'"a"', logit_bias=json.dumps(dict.fromkeys(map(hex, range(9_999)))).encode()),
    ),
    "ten thousand messages": (
        "/v1/messages",
        body(
            max_tokens=b"1",
            messages=b"["
            + b",".join([b'{"role":"user","content":"%s"}' % (b"a" * 1500)] * 9_999)
            + b"]",
        ),
    ),
    "a long text": ("/tokenize", body(content=b'"%s"' % (b"a" * LONG))),
    "a long text with pieces": (
        "/tokenize",
        body(content=b'"%s"' % (b"ab" * (LONG // 10)), with_pieces=b"true"),
    ),
    "a long text of escapes": ("/tokenize", body(content=b'"%s"' % (b"\\n" * (LONG // 2)))),
    "a long prompt": ("/completion", body(prompt=b'"%s"' % (b"a" * LONG))),
    "a long message": ("/v1/chat/completions", body(messages=_MESSAGE % (b'"%s"' % (b"a" * LONG)))),
    "a long model": ("/detokenize", body(tokens=b"[97]", model=b'"%s"' % (b"a" * LONG))),
    "most tokens as text": (
        "/detokenize",
        body(tokens=b"[" + b",".join([b"97"] * MAX_TOKEN_IDS) + b"]"),
    ),
    "two thousand embeddings": (
        "/v1/embeddings",
        body(input=b"[" + b",".join([b'"a"'] * 2048) + b"]"),
    ),
    "many logprobs": (
        "/v1/completions",
        body(prompt=b'"%s"' % (b"a" * 3000), echo=b"true", logprobs=b"250", max_tokens=b"1"),
    ),
    "depth within the limit": ("/completion", body(prompt=nested(MAX_DEPTH - 1))),
}  # fmt: skip


def post(url: str, path: str, content: bytes) -> httpx.Response:
    headers = {"content-type": "application/json"}
    return httpx.post(url + path, content=content, headers=headers, timeout=PATIENCE)


def check(answer: httpx.Response) -> None:
    assert answer.status_code < 500
    if answer.status_code != 200:
        assert len(answer.content) < 3000, "an error says what is wrong, not all of it"


@pytest.mark.parametrize("name", _BOMBS)
def test_a_bystander_reads_on(bystander: Bystander, name: str) -> None:
    path, content = _BOMBS[name]
    bystander.forget()
    check(post(bystander.url, path, content))
    bystander.read_on(3)
    assert bystander.longest_lag <= LONGEST_LAG


def test_a_bystander_reads_on_while_many_come_at_once(bystander: Bystander) -> None:
    names = ("texts", "most ids", "most wrong ids", "a long text of escapes", "long numbers")
    bystander.forget()
    with ThreadPoolExecutor(10) as clients:
        for answer in clients.map(lambda name: post(bystander.url, *_BOMBS[name]), names * 2):
            check(answer)
    bystander.read_on(3)
    assert bystander.longest_lag <= LONGEST_LAG


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"NaN", "infinite or NaN"),
        (b"-Infinity", "infinite"),
        (b"1e400", "infinite"),
        (b"9" * 10_000, "longer than 64"),
        (b'"\\ud800"', "surrogate"),
        (b'"\\udc00\\ud800"', "surrogate"),
        (b'"\xed\xa0\x80"', "surrogate"),
        (b'{"a":1,"a":2}', "twice"),
        (b"\x00", "zero byte"),
        (nested(MAX_DEPTH), "levels deep"),
        (spread(b"1")[:-1] + b",1" * 200 + b"]", "values"),
    ],
)
def test_what_no_parser_should_take_is_refused(
    bystander: Bystander, value: bytes, reason: str
) -> None:
    answer = post(bystander.url, "/completion", body(prompt=b'"a"', other=value))
    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "value",
    [
        b"1e-400",
        b"-0.0",
        b'"\\ud83c\\udf6e"',
        b'{"a":{"a":1},"b":[{"a":2}]}',
        nested(MAX_DEPTH - 1),
    ],
)
def test_what_is_rare_and_right_is_taken(bystander: Bystander, value: bytes) -> None:
    answer = post(bystander.url, "/completion", body(prompt=b'"a"', n_predict=b"1", other=value))
    assert answer.status_code == 200, answer.text


def test_one_error_is_told_of_many(bystander: Bystander) -> None:
    prompt: list[Any] = [5] * 1000 + [-1] * 1000
    answer = httpx.post(f"{bystander.url}/completion", json={"prompt": prompt}, timeout=PATIENCE)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("prompt.1000: ")
