"""EAGLE-3 drafts in the engine: they change no text, and good ones save steps."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_llama
from ingot import LLM, Grammar
from ingot.engine.model.eagle_head import EagleHead
from ingot.engine.speculation import AutoSpeculation
from ingot.errors import ConfigError, ModelChangedError
from ingot.gguf import GgufLoader
from models.tiny_models import Fixture
from tiny_eagle import TARGET_LAYERS, TinyEagle, read_tensors, write_target
from tiny_llama import WIDTH

PROMPT = [256, *range(100), *range(40)]
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
HOT: dict[str, Any] = {
    "temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "ignore_eos": True,
}  # fmt: skip
ASKED: list[dict[str, Any]] = [
    {"max_tokens": 80, **GREEDY},
    {"max_tokens": 80, "seed": 4, **HOT},
    {"max_tokens": 40, "seed": 1, "temperature": 0.3, "logprobs": True, "ignore_eos": True},
    {"max_tokens": 60, "stop": ["5"], **GREEDY},
    {"max_tokens": 200, "context_overflow": "stop", **GREEDY},
    {"max_tokens": 200, "context_overflow": "shift", "keep": 4, **GREEDY},
]


def silent_target(path: Path) -> Path:
    """A target whose layers add nothing: what it says depends on the last token alone."""
    shapes = tiny_llama.shapes(TARGET_LAYERS)
    names = (name for name in shapes if "attn_output" in name or "ffn_down" in name)
    silent: dict[str, Any] = {name: np.zeros(shapes[name], np.float32) for name in names}
    # A norm of both signs: the likeliest token is not the one before.
    norm = np.random.default_rng(2).normal(0, 1, WIDTH).astype(np.float32)
    return write_target(path, silent | {"output_norm.weight": norm})


def knowing_draft(path: Path, target: Path) -> Path:
    """A draft that says what the silent target says.

    Attention looks at its own position only and gives the token's normed embedding, less the
    hidden state that it is added to. The output has the target's rows in another order.
    """
    tokens = len(tiny_llama.vocabulary())
    eagle = TinyEagle(heads=1, kv_heads=1, head_size=WIDTH, tokens=tokens, adds_to_normed=True)
    one, nothing = np.eye(WIDTH, dtype=np.float32), np.zeros((WIDTH, WIDTH), np.float32)
    sharp = np.concatenate([6 * one, nothing], axis=1)
    order = np.random.default_rng(5).permutation(tokens)
    known = {name: rows.astype(np.float32) for name, rows in read_tensors(target).items()}
    return eagle.write(
        path,
        tensors={
            "fc.weight": np.zeros_like(eagle.tensors()["fc.weight"]),
            "blk.0.attn_norm.weight": np.ones(WIDTH, np.float32),
            "blk.0.attn_norm_2.weight": np.ones(WIDTH, np.float32),
            "blk.0.attn_q.weight": sharp,
            "blk.0.attn_k.weight": sharp,
            "blk.0.attn_v.weight": np.concatenate([one, -one], axis=1),
            "blk.0.attn_output.weight": one,
            "blk.0.ffn_down.weight": np.zeros_like(eagle.tensors()["blk.0.ffn_down.weight"]),
            "output_norm.weight": known["output_norm.weight"],
            "output.weight": known["token_embd.weight"][order],
            "d2t": order.astype(np.int64),
        },
    )


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("eagle") / "target.gguf")


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyEagle().write(tmp_path_factory.mktemp("eagle") / "draft.gguf")


@pytest.fixture(scope="module")
def knowing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target, and a draft that knows what it will say."""
    folder = tmp_path_factory.mktemp("knowing")
    target = silent_target(folder / "target.gguf")
    return target, knowing_draft(folder / "draft.gguf", target)


def texts(llm: LLM) -> list[Any]:
    return [
        llm.generate(prompt, **fields) for prompt in (PROMPT, [1, 2, 3] * 30) for fields in ASKED
    ]


@pytest.fixture(scope="module")
def expected(target: Path) -> Iterator[list[Any]]:
    with LLM(target, threads=1) as llm:
        yield texts(llm)


def check(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.text, one.token_ids) == (other.text, other.token_ids)
        assert (one.finish_reason, one.logprobs) == (other.finish_reason, other.logprobs)


def head_of(llm: LLM) -> EagleHead:
    head = llm.engine._parts.guesses.draft
    assert isinstance(head, EagleHead)
    return head


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_guesses_change_no_text(
    target: Path, tmp_path: Path, kv_type: str, expected: list[Any]
) -> None:
    draft = TinyEagle(head_size=32).write(tmp_path / "draft.gguf")
    with LLM(target, threads=1, kv_type=kv_type) as llm:
        plain = expected if kv_type == "f16" else texts(llm)
    with LLM(target, threads=1, kv_type=kv_type, draft=draft) as llm:
        check(texts(llm), plain)
        assert llm.stats.guessed_tokens > 20
        requests = [
            llm.stream(prompt, **fields) for prompt in (PROMPT, [1, 2, 3] * 30) for fields in ASKED
        ]
        check([request.result() for request in requests], plain)
        assert llm.stats.blocks_held == 0
        pool = head_of(llm).cache.pool
        assert pool.available(0) == pool.sizes[0]


def test_a_draft_that_knows_the_target_is_right(knowing: tuple[Path, Path]) -> None:
    target, draft = knowing
    with LLM(target, threads=1) as llm:
        expected = llm.generate(PROMPT, max_tokens=100, **GREEDY).token_ids
    with LLM(target, threads=1, draft=draft) as llm:
        done = llm.generate(PROMPT, max_tokens=100, **GREEDY)
        assert done.token_ids == expected
        stats = llm.stats
        assert stats.accepted_tokens > 0.8 * stats.guessed_tokens > 40
        assert stats.text_steps < 40
        assert done.timings.accepted_tokens == stats.accepted_tokens
        assert len(set(expected)) > 4
        print(f"{stats.accepted_tokens} of {stats.guessed_tokens} right, {stats.text_steps} steps")


def test_sampled_texts_keep_their_distribution(knowing: tuple[Path, Path]) -> None:
    """Two samples of a thousand texts, one with guesses: chi-square of their two last tokens."""
    target, draft = knowing

    def counted(llm: LLM, first: int) -> Counter[tuple[int, ...]]:
        params = {"temperature": 3.0, "top_k": 4, "top_p": 1.0, "min_p": 0.0, "ignore_eos": True}
        done = (
            llm.generate([7, 8, 9] * 4, max_tokens=4, seed=seed, **params)
            for seed in range(first, first + 1000)
        )
        return Counter(each.token_ids[2:] for each in done)

    with LLM(target, threads=1) as llm:
        plain = counted(llm, 0)
    with LLM(target, threads=1, draft=draft) as llm:
        guessed = counted(llm, 5000)
        assert 0 < llm.stats.accepted_tokens < llm.stats.guessed_tokens
    cells = [pair for pair in plain | guessed if plain[pair] + guessed[pair] >= 10]
    assert len(cells) > 20
    statistic = sum(
        (plain[pair] - guessed[pair]) ** 2 / (plain[pair] + guessed[pair]) for pair in cells
    )
    print(f"chi-square {statistic:.1f} of {len(cells)} cells")
    # Mean and deviation of a chi-square distribution: 4 deviations are one chance in ten thousand.
    assert statistic < len(cells) + 4 * (2 * len(cells)) ** 0.5


@pytest.mark.parametrize("which", ["random", "knowing"])
def test_automatic_guesses(
    target: Path,
    draft: Path,
    knowing: tuple[Path, Path],
    which: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = iter(range(1_000_000))
    monkeypatch.setattr(
        AutoSpeculation, "tokens_worth", lambda *_, **__: (5, 0, 1, 3, 0, 0, 12)[next(calls) % 7]
    )
    monkeypatch.setattr(AutoSpeculation, "pause", 1)
    model, file = knowing if which == "knowing" else (target, draft)
    with LLM(model, threads=1) as llm:
        expected = texts(llm)
    with LLM(model, threads=1, draft=file, speculation="auto") as llm:
        check(texts(llm), expected)
        assert llm.stats.guessed_tokens > 0
        assert llm.stats.blocks_held == 0


def test_forks_saved_texts_and_conversations(knowing: tuple[Path, Path], tmp_path: Path) -> None:
    target, draft = knowing
    found = []
    for options in ({}, {"draft": draft}):
        with LLM(target, threads=1, **options) as llm:  # type: ignore[arg-type]
            request = llm.stream(PROMPT, max_tokens=60, **GREEDY)
            pieces = iter(request)
            next(pieces)
            other = request.fork(seed=3)
            said = [request.result().token_ids, other.result().token_ids]
            llm.save(PROMPT, tmp_path / "text.cache")
            llm.engine.clear_cache()
            llm.restore(tmp_path / "text.cache")
            done = llm.generate([*PROMPT, 5, 6], max_tokens=40, **GREEDY)
            assert done.timings.reused_tokens > 100
            said.append(done.token_ids)
            session = llm.session(max_tokens=10, **GREEDY)
            first = session.send("hello").text
            session.send("more")
            session.undo()
            said.append((first, session.send("more").text, session.send("again").text))
            found.append(said)
            accepted = llm.stats.accepted_tokens
    assert found[0] == found[1]
    assert accepted > 0


@pytest.mark.parametrize("name", ["qwen35", "falcon-h1", "gemma3", "glm4moe"])
def test_other_targets(name: str, tmp_path: Path) -> None:
    """Hybrids run tokens again after a wrong guess; windows give blocks back."""
    fixture = Fixture.load(name)
    target = fixture.write(tmp_path / "target.gguf")
    with GgufLoader(target) as file:
        tokens = tuple(file.metadata.strings("tokenizer.ggml.tokens"))
    width = fixture.shapes["token_embd.weight"][1]
    draft = TinyEagle(
        width=width, target_width=width, vocabulary=tokens, tokens=40, layers=(1, 2)
    ).write(tmp_path / "draft.gguf")
    asked: list[dict[str, Any]] = [{**GREEDY}, {"seed": 3, **HOT}]
    with LLM(target, threads=1) as llm:
        expected = [llm.generate([*range(40)], max_tokens=40, **each).token_ids for each in asked]
    with LLM(target, threads=1, draft=draft) as llm:
        requests = [llm.stream([*range(40)], max_tokens=40, **each) for each in asked * 2]
        assert [request.result().token_ids for request in requests] == expected * 2
        assert llm.stats.guessed_tokens > 0


def test_an_encoder_decoder_has_no_draft(tmp_path: Path) -> None:
    target = Fixture.load("t5").write(tmp_path / "target.gguf")
    draft = TinyEagle(layers=(0, 1)).write(tmp_path / "draft.gguf")
    with pytest.raises(ConfigError, match="is an encoder-decoder, which has no draft model"):
        LLM(target, threads=1, draft=draft)


def test_a_small_cache(target: Path, draft: Path, expected: list[Any]) -> None:
    """Texts that have to make room for others."""
    with LLM(target, threads=1, draft=draft, cache_tokens=512) as llm:
        requests = [llm.stream(PROMPT, **ASKED[0]) for _ in range(6)]
        check([request.result() for request in requests], [expected[0]] * 6)


def test_no_draft_keeps_no_hidden_states(target: Path, draft: Path) -> None:
    with LLM(target, threads=1) as llm:
        assert not llm.engine.model.keeps_hidden
        plain = llm.engine.model._backend.plan.size  # type: ignore[union-attr]
    with LLM(target, threads=1, draft=draft) as llm:
        assert llm.engine.model.keeps_hidden
        assert llm.engine.model._backend.plan.size >= plain  # type: ignore[union-attr]


def test_grammars_and_guidance_go_on_without_guesses(target: Path, draft: Path) -> None:
    asked: list[dict[str, Any]] = [
        {"grammar": Grammar.gbnf('root ::= "a"+')},
        {"negative_prompt": [1, 2], "cfg_scale": 1.5},
    ]
    found = []
    for options in ({}, {"draft": draft}):
        with LLM(target, threads=1, **options) as llm:  # type: ignore[arg-type]
            found.append(
                [llm.generate(PROMPT, max_tokens=8, **GREEDY, **more).token_ids for more in asked]
            )
            assert llm.stats.guessed_tokens == 0
    assert found[0] == found[1]


def test_a_draft_excludes_other_guesses(target: Path, draft: Path) -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        LLM(target, draft=draft, speculation="ngram")


def test_a_draft_file_that_changes_ends_what_needs_it(target: Path, tmp_path: Path) -> None:
    path = TinyEagle(feed_forward=4096).write(tmp_path / "draft.gguf")
    with LLM(target, threads=1, draft=path) as llm:
        llm.generate(PROMPT, max_tokens=5, **GREEDY)
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
        with pytest.raises(ModelChangedError, match=r"draft\.gguf became shorter"):
            llm.generate(PROMPT, max_tokens=40, **GREEDY)
        assert llm.engine.change is not None


def test_an_error_of_the_draft_ends_the_text(
    target: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that comes again when the draft reads what waits; nobody waits for ever."""
    with LLM(target, threads=1, draft=draft) as llm:

        def broken(*_: object) -> None:
            raise FloatingPointError("broken")

        with monkeypatch.context() as other:
            other.setattr(EagleHead, "guess", broken)
            other.setattr(EagleHead, "read", broken)
            with pytest.raises(FloatingPointError):
                llm.generate(PROMPT, max_tokens=40, **GREEDY)
        assert len(llm.generate(PROMPT, max_tokens=9, **GREEDY).token_ids) == 9
        pool = head_of(llm).cache.pool
        assert pool.available(0) == pool.sizes[0]
