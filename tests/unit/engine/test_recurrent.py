"""Recurrent models and hybrids in the engine: states are found, forked, saved and given up like
keys and values, and nobody notices."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holding import PATIENCE
from ingot import LLM
from ingot.engine.model.memory import CacheSize
from ingot.engine.speculation.proposers import NgramProposer, Prospect
from ingot.errors import ConfigError
from ingot.gguf import GgufLoader
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from models.tiny_models import Fixture
from tiny_llama import write_tiny_llama

PROMPT = np.random.default_rng(1).integers(0, 61, 150).tolist()
GREEDY = {"temperature": 0, "ignore_eos": True}
HOT = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module", params=["mamba2-groups", "nemotron_h", "lfm2", "qwen35"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Mamba 2, and models with attention in some layers and states in others."""
    return Fixture.load(request.param).write(tmp_path_factory.mktemp("engine") / "model.gguf")


@pytest.fixture
def llm(path: Path) -> Iterator[LLM]:
    """It, open."""
    with LLM(path, threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def plain(path: Path) -> Iterator[LLM]:
    """It, without anything that texts share."""
    with LLM(path, threads=1, reuse="none") as opened:
        yield opened


def test_prompts_find_the_last_state_that_was_kept(llm: LLM, plain: LLM) -> None:
    """At every fourth run, and at the last whole one."""
    expected = plain.generate(PROMPT, max_tokens=10, seed=1, **HOT)
    for reused in (0, 128):
        done = llm.generate(PROMPT, max_tokens=10, seed=1, **HOT)
        assert done.token_ids == expected.token_ids
        assert done.timings.reused_tokens == reused
    other = [*PROMPT[:140], 3, 4, 5]
    done = llm.generate(other, max_tokens=10, seed=1, **HOT)
    assert done.timings.reused_tokens == 128
    assert done.token_ids == plain.generate(other, max_tokens=10, seed=1, **HOT).token_ids
    assert llm.generate(PROMPT[:100], max_tokens=1).timings.reused_tokens == 0


def test_a_conversation_of_twenty_turns_reads_each_token_once(path: Path) -> None:
    """All but the last token of an answer, which has not run, are in the cache."""
    history: list[int] = []
    with LLM(path, threads=1) as llm, LLM(path, threads=1, reuse="none") as anew:
        for turn in range(20):
            known = max(len(history) - 1, 0)
            history += PROMPT[turn : turn + 7]
            done = llm.generate(history, max_tokens=5, **GREEDY)
            assert done.timings.reused_tokens == known
            assert done.token_ids == anew.generate(history, max_tokens=5, **GREEDY).token_ids
            history += done.token_ids
        last_answer = len(done.token_ids)
        assert llm.stats.prompt_tokens == 20 * 7 + 19
        assert llm.stats.reused_tokens == sum(12 * turn - 1 for turn in range(1, 20)), (
            "what was read or written before, each time"
        )
        assert last_answer == 5


def test_a_turn_that_is_changed_begins_at_a_block(path: Path) -> None:
    """A state cannot be taken back: undo reads again from the last one that was kept."""
    with LLM(path, threads=1) as llm, LLM(path, threads=1, reuse="none") as anew:
        done = llm.generate(PROMPT, max_tokens=60, **GREEDY)
        history = [*PROMPT, *done.token_ids]
        other = [*history[:200], 5, 6, 7]
        again = llm.generate(other, max_tokens=5, **GREEDY)
        assert again.timings.reused_tokens == 192
        assert again.token_ids == anew.generate(other, max_tokens=5, **GREEDY).token_ids


def test_too_few_states_change_no_text(path: Path, plain: LLM) -> None:
    """Eight states for ten texts, which take turns and lose nothing."""
    prompts = [[n + 1, *PROMPT[:60]] for n in range(10)]
    expected = [
        plain.generate(prompt, max_tokens=50, seed=n, **HOT).token_ids
        for n, prompt in enumerate(prompts)
    ]
    for reuse in ("none", "prompt", "all"):
        with LLM(path, threads=1, reuse=reuse, cache_tokens=32) as llm:
            requests = [
                llm.stream(prompt, max_tokens=50, seed=n, **HOT) for n, prompt in enumerate(prompts)
            ]
            assert [request.result().token_ids for request in requests] == expected
            assert llm.stats.blocks == 8
            assert llm.stats.blocks_held == 0


def test_beams_fork_states(llm: LLM) -> None:
    """Over the end of a run, from which on they have states of their own."""
    for beam in llm.beam_search(PROMPT[:40], 6, max_tokens=40):
        end = [llm.tokenizer.eos_id] if len(beam.token_ids) < 40 else []
        score = llm.score([*PROMPT[:40], *beam.token_ids, *end], first=40)
        assert beam.logprob == pytest.approx(sum(score.logprobs), abs=1e-3)


def test_a_fork_goes_on_from_here(llm: LLM) -> None:
    began, go_on = threading.Event(), threading.Event()

    def hold(token_ids: np.ndarray, _: Any) -> None:
        if len(token_ids) == len(PROMPT) + 20:
            began.set()
            assert go_on.wait(PATIENCE)

    request = llm.stream(PROMPT, max_tokens=50, seed=3, processors=[hold], **HOT)
    assert began.wait(PATIENCE)
    threading.Timer(0.05, go_on.set).start()
    fork = request.fork(seed=3, processors=())
    assert fork.result().token_ids == request.result().token_ids
    assert llm.stats.blocks_held == 0


@pytest.mark.parametrize("length", [150, 96, 20])
def test_a_saved_text_comes_back(path: Path, tmp_path: Path, plain: LLM, length: int) -> None:
    file = tmp_path / "text.kv"
    with LLM(path, threads=1) as llm:
        llm.save(PROMPT[:length], file)
    with LLM(path, threads=1) as llm:
        tokens = llm.restore(file)
        assert list(tokens) == PROMPT[: length // 32 * 32]
        text = [*PROMPT[:length], 1, 2]
        done = llm.generate(text, max_tokens=10, seed=2, **HOT)
        assert done.timings.reused_tokens == len(tokens)
        assert done.token_ids == plain.generate(text, max_tokens=10, seed=2, **HOT).token_ids


def test_states_inside_are_told(llm: LLM, path: Path) -> None:
    with GgufLoader(path) as model:
        layers = model.metadata.integer(f"{model.metadata['general.architecture']}.block_count")
    states = llm.hidden_states(PROMPT)
    assert states.shape == (layers + 1, 150, 64)
    assert llm.embed(["t1 t2", "t3"] * 12).shape == (24, 64)


def test_states_come_back_after_wrong_guesses(path: Path, plain: LLM) -> None:
    """Guesses that are right, half right and wrong, alone and beside other texts."""
    texts = [PROMPT, PROMPT[:31], [1, 2, 3] * 20]
    expected = [plain.generate(text, max_tokens=100, **GREEDY) for text in texts]

    class Oracle(NgramProposer):
        """Knows the texts, and is wrong at every third guess, from some token on."""

        guesses = 0

        def prospect(self, tokens: Any) -> Prospect:  # noqa: ARG002 (see Proposer)
            return Prospect(0, 0.9)

        def propose(self, tokens: Any, most: int) -> list[int]:
            begun = tokens.tolist()
            whole = next(
                [*text, *done.token_ids]
                for text, done in zip(texts, expected, strict=True)
                if [*text, *done.token_ids][: len(begun)] == begun
            )
            guess = whole[len(begun) : len(begun) + most]
            self.guesses += 1
            wrong = (len(guess), 0, self.guesses % 5)[self.guesses % 3]
            return [*guess[:wrong], *((token + 1) % 61 for token in guess[wrong:])]

    with LLM(path, threads=1, speculation="ngram") as llm:
        llm.engine._parts.guesses._proposer = Oracle  # type: ignore[method-assign, assignment]
        for text, one in zip(texts, expected, strict=True):
            done = llm.generate(text, max_tokens=100, **GREEDY)
            assert done.token_ids == one.token_ids
            assert done.timings.steps < one.timings.steps
        requests = [llm.stream(text, max_tokens=100, **GREEDY) for text in texts]
        for request, one in zip(requests, expected, strict=True):
            assert request.result().token_ids == one.token_ids
        assert 0 < llm.stats.accepted_tokens < llm.stats.guessed_tokens
        assert llm.stats.blocks_held == 0


def test_guesses_that_find_no_room_to_come_back(path: Path, plain: LLM) -> None:
    with LLM(path, threads=1, speculation="ngram", cache_tokens=64, context=64) as llm:
        pool = llm.engine.model.pool
        group = len(pool.layout.groups) - 1
        text = [1, 2, 3] * 8
        expected = plain.generate(text, max_tokens=30, **GREEDY).token_ids
        held = [pool.take(group) for _ in range(pool.available(group) - 2)]
        assert llm.generate(text, max_tokens=30, **GREEDY).token_ids == expected
        for block in held:
            pool.give_back(group, block)


def test_a_recurrent_model_is_no_draft(path: Path, tmp_path: Path) -> None:
    llama = write_tiny_llama(tmp_path / "llama.gguf")
    with pytest.raises(ConfigError, match=r"model.gguf is a recurrent model"):
        LLM(llama, draft=path)


@pytest.mark.parametrize(
    ("tokens", "bytes_there", "states"),
    [(None, 1 << 40, 256), (None, 400 << 10, 100), (None, 4 << 10, 8), (64, 1 << 40, 8)],
)
def test_as_many_states_as_memory_allows(tokens: int | None, bytes_there: int, states: int) -> None:
    """Four contexts' worth, a quarter of the memory, and at least what a few texts need."""
    layout = KvLayout.of([], KvType.F16, [256])
    assert CacheSize.of(layout, 8192, tokens, bytes_there).states == states
