"""Filling in the middle: `/infill`, and the suffix of OpenAI's completions."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from in_process import asgi_client

from ingot.errors import TokenizerError
from ingot.server.fill_middle import OtherFile, middle_prompt
from ingot.tokenizer import Tokenizer
from tiny_llama import write_tiny_llama

# Bytes that no text here has stand for the tokens.
MIDDLE = {"fim_pre": 1, "fim_suf": 2, "fim_mid": 3}
PROJECT = {"fim_rep": 4, "fim_sep": 5}
BOS = 256


def tiny(path: Path, ids: dict[str, int]) -> Path:
    keys = {f"tokenizer.ggml.{name}_token_id": number for name, number in ids.items()}
    return write_tiny_llama(path / "tiny.gguf", keys=keys)


@pytest.fixture(scope="module")
def filling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("filling"), MIDDLE)


def test_a_prompt_around_a_gap(filling: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_gguf(filling)
    others = [OtherFile("a.py", "x"), OtherFile("b.py", "y")]
    assert middle_prompt(tokenizer, "pq", "r") == [BOS, 1, *b"pq", 2, *b"r", 3]
    assert middle_prompt(tokenizer, [7, 8], "", begun="z") == [BOS, 1, 7, 8, 2, 3, *b"z"]
    assert middle_prompt(tokenizer, "p", "r", others=others) == [
        *(BOS, *b"x", *b"y", 1, *b"p", 2, *b"r", 3)
    ]
    known = Tokenizer.from_gguf(tiny(tmp_path, MIDDLE | PROJECT))
    assert middle_prompt(known, "p", "r", others=others) == [
        *(BOS, 4, *b"myproject\n", 5, *b"a.py\nx", 5, *b"b.py\ny", 5, *b"filename\n"),
        *(1, *b"p", 2, *b"r", 3),
    ]
    assert middle_prompt(known, "p", "r") == [BOS, 1, *b"p", 2, *b"r", 3]


def test_a_vocabulary_without_the_tokens_cannot(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_gguf(tiny(tmp_path, {"fim_pre": 1}))
    with pytest.raises(TokenizerError, match="no suffix, middle token"):
        middle_prompt(tokenizer, "a", "b")


def ask(path: Path, *requests: tuple[str, dict[str, object]]) -> list[Any]:
    async def run() -> list[Any]:
        async with asgi_client(path) as client:
            return [await client.post(url, json=body) for url, body in requests]

    return asyncio.run(run())


def test_gaps_are_filled_over_http(filling: Path) -> None:
    limits = {"n_predict": 6, "temperature": 0, "ignore_eos": True}
    gap = {"input_prefix": "def f(", "input_suffix": "): pass", **limits}
    infill, extra, begun, openai, whole, echo = ask(
        filling,
        ("/infill", gap),
        ("/infill", {**gap, "input_extra": [{"filename": "a", "text": "import os\n"}]}),
        ("/infill", {**gap, "prompt": "x", "stream": True}),
        ("/v1/completions", {"prompt": "def f(", "suffix": "): pass", **limits}),
        ("/completion", {"prompt": [BOS, 1, *b"def f(", 2, *b"): pass", 3], **limits}),
        ("/v1/completions", {"prompt": "a", "suffix": "b", "echo": True}),
    )
    assert infill.json()["content"] == whole.json()["content"]
    assert openai.json()["choices"][0]["text"] == whole.json()["content"]
    assert infill.json()["tokens_evaluated"] == 17
    assert extra.json()["tokens_evaluated"] == 27
    assert '"tokens_evaluated":18' in begun.text
    assert echo.status_code == 400


def test_what_is_missing_is_said(filling: Path, tmp_path: Path) -> None:
    missing, wrong = ask(
        filling,
        ("/infill", {"input_prefix": "a"}),
        ("/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": 5}]}),
    )
    plain = tiny(tmp_path, {})
    cannot, openai = ask(
        plain,
        ("/infill", {"input_prefix": "a", "input_suffix": "b"}),
        ("/v1/completions", {"prompt": "a", "suffix": "b"}),
    )
    assert [answer.status_code for answer in (missing, wrong, cannot, openai)] == [400] * 4
    assert "input_suffix" in missing.json()["error"]["message"]
    assert "input_extra.0.text" in wrong.json()["error"]["message"]
    assert "does not support fill-in-the-middle" in cannot.json()["error"]["message"]
    assert "does not support fill-in-the-middle" in openai.json()["error"]["message"]
