"""EAGLE-3 drafts: what they compute, by an independent definition; files that cannot be used."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot import LLM
from ingot.backends.batch import ExecutionPhase
from ingot.backends.reference import Reference
from ingot.engine.model.eagle_head import EagleHead
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.speculation import open_eagle
from ingot.engine.speculation.head_proposer import HeadProposer
from ingot.errors import ConfigError, GgufError, IngotError, ModelError
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph.cut import cut, layer_count
from ingot.models import build_graph
from models.tiny_models import Fixture
from tiny_eagle import (
    LAYERS,
    TARGET_LAYERS,
    Definition,
    TinyEagle,
    read_tensors,
    target_streams,
    write_target,
)
from tiny_llama import WIDTH

IDS = (np.arange(40) * 7 % 250).tolist()
EXACT: dict[str, Any] = {"threads": 1, "kv_type": "f32", "precision": "exact"}
KINDS = {
    "usual": TinyEagle(),
    "no map": TinyEagle(tokens=None),
    "adds to normed": TinyEagle(adds_to_normed=True),
    "norm before fc": TinyEagle(target_norm=True),
    "own embedding": TinyEagle(width=48, embedding=True),
    "target's output": TinyEagle(output=False, tokens=None),
    "last layer": TinyEagle(layers=(0, 2, TARGET_LAYERS)),
    "two layers": TinyEagle(layers=(3, 1)),
}
ARCHITECTURES = (
    "llama", "qwen3", "qwen3moe", "gemma2", "gemma3", "gpt-oss", "falcon", "qwen35", "olmo2",
    "glm4moe", "deepseek2-v3",
)  # fmt: skip


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("eagle") / "target.gguf")


def run(model: LoadedModel, ids: list[int], phase: ExecutionPhase = ExecutionPhase.PROMPT) -> Any:
    sequence = model.sequence()
    last = np.array([len(ids) - 1], np.int32)
    logits = model.step([sequence], [np.array(ids, np.int32)], last, phase)
    sequence.close()
    return logits


def test_hidden_states_are_those_that_enter_the_layers(target: Path) -> None:
    expected = target_streams(read_tensors(target), IDS)
    for layers in ((0, 1, 2, 3), (3, 1), (2, TARGET_LAYERS)):
        with LoadedModel(target, hidden_layers=layers, **EXACT) as model:
            run(model, IDS)
            found = np.split(model.last_hidden(len(IDS)), len(layers), axis=1)
            for layer, rows in zip(layers, found, strict=True):
                np.testing.assert_allclose(rows, expected[layer], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_hidden_states_of_architectures(name: str, tmp_path: Path) -> None:
    """Rows as the reference computes them; logits do not change by one bit."""
    fixture = Fixture.load(name)
    path, ids = fixture.write(tmp_path / "model.gguf"), fixture.token_ids[:40]
    with GgufLoader(path) as file:
        graph = build_graph(file)
        layers = tuple(range(1, layer_count(graph)))
        parts = {layer: cut(graph, layer).first for layer in layers}
        expected = {
            layer: Reference(part, file, np.float64).forward(ids) for layer, part in parts.items()
        }
    with LoadedModel(path, **EXACT) as model:
        logits = run(model, ids)
    with LoadedModel(path, hidden_layers=layers, **EXACT) as model:
        np.testing.assert_array_equal(run(model, ids), logits)
        found = np.split(model.last_hidden(len(ids)), len(layers), axis=1)
        for layer, rows in zip(layers, found, strict=True):
            scale = np.abs(expected[layer]).max()
            np.testing.assert_allclose(rows, expected[layer], rtol=1e-3, atol=1e-3 * scale)
    with LoadedModel(path, hidden_layers=(layer_count(graph),), **EXACT) as model:
        np.testing.assert_array_equal(run(model, ids), logits)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_definition(target: Path, tmp_path: Path, kind: str) -> None:
    """Read at once and in parts; the tokens of the last part decode."""
    eagle = KINDS[kind]
    path = eagle.write(tmp_path / "draft.gguf")
    definition = Definition(eagle, read_tensors(path), read_tensors(target))
    states = definition.hidden_states(IDS)
    hidden, expected = definition.forward(IDS[1:], states[:-1])
    draft = open_eagle(path, None)
    assert draft is not None
    with LoadedModel(target, hidden_layers=draft.spec.target_layers, **EXACT) as model:
        head, tokens = EagleHead(model, draft), np.array(IDS, np.int32)
        run(model, IDS)
        fused = head.hidden_states(len(IDS))
        np.testing.assert_allclose(fused, states, rtol=1e-4, atol=1e-4)
        for parts in ((39,), (20, 19), (30, 1, 1, 7)):
            cached, start = head.open(tokens[1:2]), 0
            for count in parts:
                end = start + count
                said = head.next_token(cached.blocks, tokens[start + 1 : end + 1], fused[start:end])
                start = end
                np.testing.assert_allclose(said.logits, expected[end - 1], rtol=1e-4, atol=1e-4)
                np.testing.assert_allclose(said.hidden[0], hidden[end - 1], rtol=1e-4, atol=1e-4)
            head.cache.close(cached)
        proposer = HeadProposer(head)
        proposer.see(tokens[:30], 0, fused[:30])
        assert proposer.propose(tokens[:31], 5) == definition.guess(IDS[:31], 5)
        proposer.see(tokens[:35], 30, fused[30:35])
        assert proposer.propose(tokens[:36], 5) == definition.guess(IDS[:36], 5)
        proposer.close()
        head.close()


def test_a_quantized_draft(target: Path, tmp_path: Path) -> None:
    eagle = TinyEagle(head_size=16)
    path = eagle.write(tmp_path / "draft.gguf", type=GgmlType.Q8_0)
    with LLM(target, threads=1) as llm:
        expected = llm.generate(IDS, max_tokens=30, temperature=0).token_ids
    with LLM(target, threads=1, draft=path) as llm:
        assert llm.generate(IDS, max_tokens=30, temperature=0).token_ids == expected
        assert llm.stats.guessed_tokens > 0


def test_an_older_name_of_the_layers(target: Path, tmp_path: Path) -> None:
    path = TinyEagle().write(tmp_path / "draft.gguf", layers_key="extract_layers")
    draft = open_eagle(path, None)
    assert draft is not None
    assert draft.spec.target_layers == LAYERS
    draft.file.close()
    with LLM(target, threads=1, draft=path) as llm:
        assert len(llm.generate(IDS, max_tokens=5, temperature=0).token_ids) == 5


def test_a_draft_is_no_model(tmp_path: Path) -> None:
    path = TinyEagle().write(tmp_path / "draft.gguf")
    with pytest.raises(
        ModelError, match=r"is a draft \(eagle3\).* model with draft='draft.gguf' or --draft"
    ):
        LLM(path)


BAD_TENSORS: dict[str, tuple[dict[str, Any], str]] = {
    "fc too narrow": ({"fc.weight": np.zeros((WIDTH, WIDTH), np.float32)}, "fc.weight has shape"),
    "an unknown tensor": ({"blk.0.attn_q.bias": np.zeros(80, np.float32)}, "has no place in this"),
    "a wide norm": ({"blk.0.attn_norm_2.weight": np.ones(3, np.float32)}, "norm_2.weight has sh"),
    "floats as map": ({"d2t": np.zeros(100, np.float32)}, "must hold whole numbers"),
    "differences as map": ({"d2t": np.zeros(100, np.int64)}, "convert the draft again"),
    "a map too far": ({"d2t": np.arange(200, 300)}, "must hold token ids from 0 to 257"),
    "a map below 0": ({"d2t": np.arange(-1, 99)}, "must hold token ids from 0 to 257"),
    "a map too short": ({"d2t": np.arange(50)}, "output.weight has shape"),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_bad_tensors(target: Path, tmp_path: Path, case: str) -> None:
    tensors, message = BAD_TENSORS[case]
    path = TinyEagle().write(tmp_path / "draft.gguf", tensors=tensors)
    with pytest.raises(ModelError, match=message):
        LLM(target, threads=1, draft=path)


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ("fc.weight", "fc.weight .*is missing"),
        ("blk.0.attn_norm.weight", "attn_norm.weight .*is missing"),
        ("blk.0.ffn_up.weight", "ffn_up.weight .*is missing"),
        ("output.weight", r"vocabulary of its own \(d2t\) and no tensor output.weight"),
        ("target_layers", "target_layers is missing"),
        ("target_hidden_size", "target_hidden_size"),
    ],
)
def test_missing_parts(target: Path, tmp_path: Path, without: str, message: str) -> None:
    path = TinyEagle().write(tmp_path / "draft.gguf", without=[without])
    with pytest.raises((ModelError, GgufError), match=message):
        LLM(target, threads=1, draft=path)


def test_a_narrow_draft_needs_its_own_embedding(target: Path, tmp_path: Path) -> None:
    path = TinyEagle(width=48).write(tmp_path / "draft.gguf")
    with pytest.raises(ModelError, match=r"has no tensor token_embd.weight, and the one of"):
        LLM(target, threads=1, draft=path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"target_hidden_size": 32}, "a draft for hidden states of 32 elements, and those of"),
        ({"vocab_size": 300}, "a draft for 300 tokens, and .* has 258"),
    ],
)
def test_another_target(
    target: Path, tmp_path: Path, keys: dict[str, object], message: str
) -> None:
    path = TinyEagle().write(tmp_path / "draft.gguf", keys=keys)
    with pytest.raises(ConfigError, match=message):
        LLM(target, threads=1, draft=path)


@pytest.mark.parametrize("layers", [(1, 2, TARGET_LAYERS + 1), (-1, 2, 3)])
def test_layers_that_the_target_lacks(
    target: Path, tmp_path: Path, layers: tuple[int, ...]
) -> None:
    path = TinyEagle(layers=layers).write(tmp_path / "draft.gguf")
    with pytest.raises(ConfigError, match=r"target.gguf has 4 layers; take the draft"):
        LLM(target, threads=1, draft=path)


NUMBERS = [0, -1, 1, 3, 2**31, 2**40, -(2**63), 0.0, -1.0, 1e30, float("nan"), float("inf"), "x"]


@pytest.mark.parametrize("key", TinyEagle().keys())
def test_any_number_is_understood_or_refused(target: Path, tmp_path: Path, key: str) -> None:
    """Never an error of another kind; what opens also guesses."""
    for value in NUMBERS:
        path = TinyEagle().write(tmp_path / "draft.gguf", keys={key: value})
        with suppress(IngotError), LLM(target, threads=1, context=64, draft=path) as llm:
            assert len(llm.generate(IDS[:9], max_tokens=8, ignore_eos=True).token_ids) == 8


def test_two_blocks_are_refused(target: Path, tmp_path: Path) -> None:
    path = TinyEagle().write(tmp_path / "draft.gguf", keys={"block_count": 2})
    with pytest.raises(ModelError, match="block_count is 2; it must be 1 to 1"):
        LLM(target, threads=1, draft=path)


def test_another_vocabulary(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = [f"t{number}" for number in range(258)]
    with monkeypatch.context() as other:
        other.setattr("tiny_llama.vocabulary", lambda: tokens)
        path = TinyEagle().write(tmp_path / "draft.gguf")
    with pytest.raises(ConfigError, match="has another vocabulary than"):
        LLM(target, threads=1, draft=path)
