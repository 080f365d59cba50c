"""An encoder-decoder in the engine: prompts are read whole and once, then texts are written."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.api import LLM
from ingot.backends.reference import Cache, Reference
from ingot.errors import ConfigError, ContextLengthError, ModelError, SamplingError
from ingot.gguf import GgufLoader
from ingot.models import build_graph
from models.recipes_encoder_decoders import ENCODER_DECODERS
from models.tiny_models import PROMPT, Fixture

FIXTURE = Fixture.load("t5")
IDS = FIXTURE.token_ids[:PROMPT]
PROMPTS = [IDS, IDS[:40], IDS[40:47], IDS[3:99]]
MOST = 30
NO_END = {"temperature": 0, "max_tokens": MOST, "ignore_eos": True}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FIXTURE.write(tmp_path_factory.mktemp("models") / "model.gguf")


@pytest.fixture(scope="module")
def expected(path: Path) -> list[tuple[int, ...]]:
    return likeliest(path, PROMPTS)


def likeliest(path: Path, prompts: list[list[int]]) -> list[tuple[int, ...]]:
    """The likeliest tokens after each prompt, one after the other."""
    texts = []
    with GgufLoader(path) as model:
        reference = Reference(build_graph(model), model, np.float64)
        for prompt in prompts:
            cache, token, text = Cache(), reference.graph.start_token or 0, []
            reference.encode(prompt, cache)
            for _ in range(MOST):
                token = int(reference.forward([token], cache)[0].argmax())
                text.append(token)
            texts.append(tuple(text))
    assert len(set(texts)) == len(texts)
    return texts


@dataclass(frozen=True)
class Written:
    """A model, what begins its texts, and what it writes after the first two prompts."""

    path: Path
    start: int
    texts: list[tuple[int, ...]]


@pytest.fixture(scope="module", params=ENCODER_DECODERS)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """With cross attention of every kind of these models."""
    fixture = Fixture.load(request.param)
    start: Any = fixture.metadata["decoder_start_token_id"]
    path = fixture.write(tmp_path_factory.mktemp("models") / "model.gguf")
    return Written(path, start, likeliest(path, PROMPTS[:2]))


def opened(path: Path, **options: Any) -> LLM:
    return LLM(path, **{"threads": 1, "kv_type": "f32", **options})


@pytest.fixture
def llm(path: Path) -> Iterator[LLM]:
    with opened(path) as llm:
        yield llm


def test_generate(llm: LLM, expected: list[tuple[int, ...]]) -> None:
    for prompt, text in zip(PROMPTS, expected, strict=True):
        done = llm.generate(prompt, **NO_END)
        assert done.token_ids == text
        assert (done.timings.prompt_tokens, done.finish_reason) == (len(prompt), "length")


def test_stream(llm: LLM, expected: list[tuple[int, ...]]) -> None:
    request = llm.stream(PROMPTS[1], **NO_END)
    pieces = list(request)
    assert len(pieces) > 1
    assert "".join(pieces) == request.result().text
    assert request.result().token_ids == expected[1]


WAYS: dict[str, dict[str, Any]] = {
    "all at once": {},
    "short chunks": {"chunk_tokens": 16, "reuse": "none"},
    "guesses": {"speculation": "ngram"},
    "two at a time": {"max_running": 2, "threads": 2},
}


@pytest.mark.parametrize("way", WAYS)
def test_many_texts(path: Path, expected: list[tuple[int, ...]], way: str) -> None:
    with opened(path, **WAYS[way]) as llm:
        requests = [llm.stream(prompt, **NO_END) for prompt in PROMPTS]
        assert [request.result().token_ids for request in requests] == expected
        assert llm.stats.blocks_held == 0


def test_a_cache_that_is_too_small_for_all(path: Path, expected: list[tuple[int, ...]]) -> None:
    """Some are preempted; their prompts and texts are computed again."""
    with opened(path, context=192, cache_tokens=256, reuse="none") as llm:
        requests = [llm.stream(prompt, **NO_END) for prompt in (*PROMPTS, *PROMPTS)]
        found = [request.result().token_ids for request in requests]
        assert found == [*expected, *expected]
        assert llm.stats.preemptions > 0


def test_a_prompt_is_read_once(llm: LLM, expected: list[tuple[int, ...]]) -> None:
    """In one step, and not again for a second text; another prompt reuses nothing of it."""
    first = llm.generate(IDS, **NO_END)
    assert llm.stats.prompt_tokens == len(IDS)
    assert llm.stats.steps == 1 + MOST
    again = llm.generate(IDS, **NO_END)
    assert first.token_ids == again.token_ids == expected[0]
    assert llm.stats.prompt_tokens == len(IDS)
    assert llm.stats.reused_tokens == len(IDS)
    longer = llm.generate([*IDS, 3], **NO_END)
    assert llm.stats.prompt_tokens == 2 * len(IDS) + 1
    assert longer.token_ids != first.token_ids


def test_a_part_of_a_prompt_is_of_no_use(path: Path) -> None:
    """Blocks of it that are left are not reused: the encoder reads all of it."""
    with opened(path, context=192, cache_tokens=192) as llm:
        first = llm.generate(IDS, **NO_END)
        llm.generate(PROMPTS[3], **NO_END)  # takes some of its blocks
        again = llm.generate(IDS, **NO_END)
        assert again.token_ids == first.token_ids
        assert llm.stats.reused_tokens == 0


def test_fork(written: Written) -> None:
    with opened(written.path) as llm:
        request = llm.stream(IDS, **NO_END)
        next(iter(request))
        forked = request.fork()
        assert forked.result().token_ids == request.result().token_ids == written.texts[0]
        assert llm.stats.prompt_tokens == len(IDS)


def test_save_and_restore(written: Written, tmp_path: Path) -> None:
    saved = tmp_path / "text"
    with opened(written.path) as llm:
        request = llm.stream(IDS, **NO_END)
        request.result()
        tokens = llm.engine.save(request, saved)
        assert tokens == (PROMPT + 1 + MOST) // 32 * 32
    with opened(written.path) as llm:
        assert llm.engine.restore(saved)[: PROMPT + 1] == (*IDS, written.start)
        assert llm.generate(IDS, **NO_END).token_ids == written.texts[0]
        assert llm.stats.prompt_tokens == 0
        assert llm.generate(PROMPTS[1], **NO_END).token_ids == written.texts[1]


def test_a_saved_prompt_without_a_text(written: Written, tmp_path: Path) -> None:
    """It is not in whole blocks: nothing of it could be used."""
    with opened(written.path) as llm:
        assert llm.engine.save(IDS, tmp_path / "text") == 0
        assert llm.engine.save(IDS[:96], tmp_path / "whole") == 96
        assert llm.engine.restore(tmp_path / "whole") == tuple(IDS[:96])


def test_beam_search(llm: LLM, expected: list[tuple[int, ...]]) -> None:
    beams = llm.beam_search(PROMPTS[2], width=1, max_tokens=8)
    end = llm.tokenizer.eos_id
    if end not in expected[2][:8]:
        assert tuple(beams[0].token_ids) == expected[2][:8]
    assert len(llm.beam_search(PROMPTS[2], width=3, max_tokens=8)) == 3


def test_guidance(llm: LLM) -> None:
    """Away from a second prompt, which the encoder reads, too."""
    plain = llm.generate(IDS, **NO_END)
    same = llm.generate(IDS, negative_prompt=PROMPTS[1], cfg_scale=1.0, **NO_END)
    other = llm.generate(IDS, negative_prompt=PROMPTS[1], cfg_scale=6.0, **NO_END)
    assert plain.token_ids == same.token_ids != other.token_ids


@pytest.mark.parametrize("kv_type", ["f16", "bf16"])
def test_other_caches(path: Path, expected: list[tuple[int, ...]], kv_type: str) -> None:
    with opened(path, kv_type=kv_type) as llm:
        assert llm.generate(IDS, **NO_END).token_ids[:3] == expected[0][:3]


def test_what_it_has_no_logits_of(llm: LLM) -> None:
    for call in (llm.logits, llm.score):
        with pytest.raises(ModelError, match="is an encoder-decoder: it has logits of what it"):
            call([1, 2, 3])


def test_what_a_prompt_that_is_read_whole_cannot_have(llm: LLM) -> None:
    with pytest.raises(SamplingError, match=r"context_overflow.*another one with an encoder"):
        llm.generate([1, 2], context_overflow="shift")
    with pytest.raises(SamplingError, match=r"heal.*an encoder reads the whole prompt"):
        llm.generate([1, 2], heal=True)


def test_a_prompt_that_fills_the_context(path: Path) -> None:
    with opened(path, context=32) as llm:
        with pytest.raises(ContextLengthError, match="the prompt has 32 tokens and the context 32"):
            llm.generate(IDS[:32])
        done = llm.generate(IDS[:31], context_overflow="stop", max_tokens=5, ignore_eos=True)
        assert done.finish_reason == "context"


def test_it_has_no_draft_and_is_none(path: Path, tmp_path: Path) -> None:
    other = Fixture.load("llama").write(tmp_path / "llama.gguf")
    for model, draft in ((path, other), (other, path)):
        with pytest.raises(ConfigError, match="is an encoder-decoder, which has no draft model"):
            opened(model, draft=str(draft))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder_start_token_id": 61}, "decoder_start_token_id is 61; it must be 0 to 60"),
        ({"attention.relative_buckets_count": 3}, "relative_buckets_count is 3; it must be 4"),
        ({"attention.relative_buckets_count": 255}, "is 255; it must be 4 to 254 in this file"),
        ({"attention.relative_buckets_count": 30}, r"attn_rel_b.weight has shape \(32, 5\), but"),
        ({"decoder_block_count": 3}, r"tensor dec.blk.2.cross_attn_k.weight .* is missing"),
        ({"decoder_block_count": 0}, "decoder_block_count is 0; it must be 1 to"),
    ],
)
def test_bad_files(changes: dict[str, int], message: str, tmp_path: Path) -> None:
    spoiled = Fixture(**{**vars(FIXTURE), "metadata": {**FIXTURE.metadata, **changes}})
    with pytest.raises(ModelError, match=message):
        opened(spoiled.write(tmp_path / "model.gguf"))


@pytest.mark.parametrize("stack", ["enc", "dec"])
def test_a_file_without_its_relative_bias(stack: str, tmp_path: Path) -> None:
    name = f"{stack}.blk.0.attn_rel_b.weight"
    shapes = {key: shape for key, shape in FIXTURE.shapes.items() if key != name}
    spoiled = Fixture(**{**vars(FIXTURE), "shapes": shapes})
    with pytest.raises(ModelError, match=rf"tensor {name} \(shape \(32, 5\)\) is missing"):
        opened(spoiled.write(tmp_path / "model.gguf"))
