"""Conversations of hybrids whose chat template leaves the reasoning out of the history: what was
read of the messages is not read again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot import LLM
from ingot.gguf import GgufWriter, ValueType
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.tokenizer import TokenType
from models.tiny_models import VOCABULARY, Fixture
from tiny_llama import vocabulary

TOKENS = [*vocabulary()[:256], "<s>", "</s>", "<think>", "</think>"]
THINK, DONE = 258, 259
LETTERS = [TOKENS.index(letter) for letter in "abcdefgh"]
TEMPLATE = """\
{%- for message in messages %}<s>{{ message.role }} \
{{ message.content.split('</think>')[-1] }}</s>{% endfor -%}
{%- if add_generation_prompt %}<s>assistant OPENED{% endif -%}"""
# What a template opens of an answer's reasoning, which the history does not have.
OPENED = {"no": "", "yes": "<think>\n", "closed": "<think>\n\n</think>\n\n"}
TURNS = 20


def write_model(name: str, path: Path) -> Path:
    """A tiny hybrid with a vocabulary of bytes and a template, and random weights."""
    fixture = Fixture.load(name)
    shapes = {
        tensor: (len(TOKENS), *shape[1:]) if shape[0] == VOCABULARY else shape
        for tensor, shape in fixture.shapes.items()
    }
    metadata = {**fixture.metadata, "context_length": 1024}
    fixture = replace(fixture, shapes=shapes, metadata=metadata)
    writer = GgufWriter(path)
    writer.add("general.architecture", fixture.architecture)
    for key, value in fixture.metadata.items():
        writer.add(f"{fixture.architecture}.{key}", value)
    for key, text in {"model": "gpt2", "pre": "gpt-2", "chat_template": TEMPLATE}.items():
        writer.add(f"tokenizer.{'' if key == 'chat_template' else 'ggml.'}{key}", text)
    writer.add("tokenizer.ggml.eos_token_id", 257)
    writer.add("tokenizer.ggml.tokens", TOKENS, ValueType.STRING)
    types = [TokenType.NORMAL] * 256 + [TokenType.CONTROL] * 2 + [TokenType.USER_DEFINED] * 2
    writer.add("tokenizer.ggml.token_type", [int(kind) for kind in types], ValueType.INT32)
    writer.add("tokenizer.ggml.merges", ["a b"], ValueType.STRING)
    for tensor, values in fixture.tensors().items():
        writer.add_tensor(tensor, values)
    writer.write()
    return path


def reasons(prompt: int, length: int) -> Callable[[Any, Any], None]:
    """Let an answer be so many letters of reasoning and five others, whichever they are."""

    def allow(token_ids: np.ndarray, logits: np.ndarray) -> None:
        at = len(token_ids) - prompt
        allowed = {0: [THINK], length: [DONE], length + 6: [257]}.get(at, LETTERS)
        kept = logits[allowed]
        logits[:] = -np.inf
        logits[allowed] = kept

    return allow


def common(one: list[int], other: list[int]) -> int:
    """How many tokens two texts begin with alike."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@pytest.fixture(scope="module", params=["mamba2-groups", "nemotron_h", "lfm2", "qwen35"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(request.param, tmp_path_factory.mktemp("engine") / "model.gguf")


@pytest.mark.parametrize(("reuse", "opened"), [("all", "no"), ("prompt", "yes"), ("all", "closed")])
def test_twenty_turns_read_each_message_once(path: Path, reuse: str, opened: str) -> None:
    """A prompt begins as the last one; an answer without its reasoning is new after that."""
    template = TEMPLATE.replace("OPENED", OPENED[opened])
    history: list[dict[str, str]] = []
    before: list[int] = []
    read = 0
    with (
        LLM(path, threads=1, reuse=reuse, chat_template=template) as llm,
        LLM(path, threads=1, reuse="none", chat_template=template) as anew,
    ):
        left_out = len(llm.tokenizer.encode(OPENED[opened], parse_special=True))
        for turn in range(TURNS):
            history.append({"role": "user", "content": "What is this? "[: 5 + turn % 9]})
            prompt = llm.chat_prompt(history)
            rules = [reasons(len(prompt), 10 + 3 * turn)]
            done = llm.chat(history, max_tokens=100, temperature=0, processors=rules)
            assert common(before, prompt) == len(before) - left_out * bool(turn)
            assert done.timings.reused_tokens == common(before, prompt)
            alone = anew.chat(history, max_tokens=100, temperature=0, processors=rules)
            assert done.token_ids == alone.token_ids
            history.append({"role": "assistant", "content": done.text})
            read += len(prompt) - common(before, prompt)
            before = prompt
        assert llm.stats.prompt_tokens == read == len(prompt) + (TURNS - 1) * left_out
        assert llm.stats.blocks_held == 0


def test_a_turn_that_is_changed_finds_a_block(path: Path) -> None:
    """The next prompt takes over the state at the end of one; undo begins at a block before it."""
    template = TEMPLATE.replace("OPENED", OPENED["yes"])
    history = [{"role": "user", "content": "What is this? " * 10}]
    with (
        LLM(path, threads=1, chat_template=template) as llm,
        LLM(path, threads=1, reuse="none", chat_template=template) as anew,
    ):
        first = llm.chat_prompt(history)
        rules = [reasons(len(first), 9)]
        done = llm.chat(history, max_tokens=100, temperature=0, processors=rules)
        again = llm.chat(history, max_tokens=100, temperature=0, processors=rules)
        assert again.token_ids == done.token_ids
        shared = len(first) - 2  # without the tag that begins reasoning, and the line's end
        assert again.timings.reused_tokens == shared
        history.append({"role": "assistant", "content": done.text})
        runs = shared // BLOCK_TOKENS * BLOCK_TOKENS
        for question, least in (("And this?", shared), ("Or this? " * 5, runs), ("And?", runs)):
            asked = [*history, {"role": "user", "content": question}]
            rules = [reasons(len(llm.chat_prompt(asked)), 9)]
            done = llm.chat(asked, max_tokens=100, temperature=0, processors=rules)
            alone = anew.chat(asked, max_tokens=100, temperature=0, processors=rules)
            assert done.token_ids == alone.token_ids
            assert done.timings.reused_tokens >= least
        assert llm.stats.blocks_held == 0


def test_ends_of_prompts_take_no_state_that_a_text_needs(path: Path) -> None:
    """Eight states for ten texts at once, which lose nothing."""
    template = TEMPLATE.replace("OPENED", OPENED["yes"])
    asked = [[{"role": "user", "content": f"{number} What is this?" * 3}] for number in range(10)]
    with LLM(path, threads=1, reuse="none", chat_template=template) as anew:
        expected = [anew.chat(each, max_tokens=50, temperature=0).token_ids for each in asked]
        prompts = [anew.chat_prompt(each) for each in asked]
    with LLM(path, threads=1, cache_tokens=32, chat_template=template) as llm:
        requests = [llm.stream(prompt, max_tokens=50, temperature=0) for prompt in prompts]
        assert [request.result().token_ids for request in requests] == expected
        assert llm.stats.blocks_held == 0
