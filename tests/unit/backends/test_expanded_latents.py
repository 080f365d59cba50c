"""Prompts whose latents are expanded, in a batch with others: each sequence keeps its form."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot import LLM
from ingot.gguf import GgmlType, GgufLoader
from ingot.models import build_graph
from models.tiny_models import VOCABULARY, Fixture
from run_batches import PROMPT, Runner


@pytest.fixture(params=["deepseek2", "deepseek2-lite"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GgufLoader]:
    fixture = Fixture.load(request.param).first_layers(3)
    with GgufLoader(fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)) as opened:
        yield opened


def text(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def runner_of(model: GgufLoader, *, expanded: bool) -> Runner:
    return Runner(build_graph(model), model, positions=128, sequences=3, expanded=expanded)


@pytest.mark.usefixtures("isa")
def test_a_sequence_in_its_form_beside_one_in_the_other(model: GgufLoader) -> None:
    texts = {"absorbed": text(1, 50), "expanded": text(2, 70), "too": text(3, 40)}
    alone = {
        name: runner_of(model, expanded=name != "absorbed").run(ids) for name, ids in texts.items()
    }
    runner = runner_of(model, expanded=True)
    runner.absorbed.add("absorbed")
    first = runner.step({name: ids[:33] for name, ids in texts.items()})
    rest = runner.step({name: texts[name][33:] for name in ("too", "absorbed", "expanded")})
    for name, expected in alone.items():
        found = np.concatenate([first[name], rest[name]])
        np.testing.assert_array_equal(found, expected)
    other = runner_of(model, expanded=True).run(texts["absorbed"])
    assert (other != alone["absorbed"]).any(), "both forms are the same code"
    np.testing.assert_allclose(other, alone["absorbed"], atol=2e-3 * np.abs(other).max())


def test_long_prompts_of_the_engine(model: GgufLoader) -> None:
    """They are expanded, to the same bits in any chunks and beside others."""
    ids = text(4, 220)
    asked: dict[str, Any] = {"max_tokens": 6, "temperature": 0, "logprobs": 1}
    options: dict[str, Any] = {"threads": 1, "kv_type": "f32", "precision": "exact"}
    with LLM(model.path, **options, reuse="prompt") as llm:
        absorbed = llm.generate(ids, **asked).logprobs
    with LLM(model.path, **options) as llm:
        expanded = llm.generate(ids, **asked).logprobs
    with LLM(model.path, **options, chunk_tokens=40) as llm:
        company = llm.stream(text(5, 3), max_tokens=200, ignore_eos=True)
        next(company)
        assert llm.generate(ids, **asked).logprobs == expanded
        company.close()
    assert expanded != absorbed
    for one, other in zip(expanded, absorbed, strict=True):
        assert one.token == other.token
        assert one.logprob == pytest.approx(other.logprob, abs=2e-3)


def test_one_wanted_token_of_each(model: GgufLoader) -> None:
    """The last layer runs for these alone."""
    texts = {"absorbed": text(1, 20), "expanded": text(2, 30)}
    runner = runner_of(model, expanded=True)
    runner.absorbed.add("absorbed")
    whole = runner.step(texts)
    for name in texts:
        runner.end(name)
    last = runner.step(texts, PROMPT, outputs=[19, 49])
    for name in texts:
        np.testing.assert_array_equal(last[name][0], whole[name][-1])


def test_generated_tokens_are_never_expanded(model: GgufLoader) -> None:
    backend = runner_of(model, expanded=True).backend
    empty = np.empty(0, np.int32)
    one = np.zeros(1, np.int32)
    with pytest.raises(ValueError, match="expanded for prompts alone"):
        backend._program.run(
            ids=one,
            positions=one,
            counts=np.ones(1, np.int32),
            tables=one,
            table_ends=np.ones(1, np.int32),
            outputs=empty,
            types=None,
            rows=None,
            adapters=None,
            adapter_scales=None,
            encoded=None,
            expanded=np.ones(1, np.int32),
            prompt=False,
            logits=np.empty((0, VOCABULARY), np.float32),
            threads=1,
        )
