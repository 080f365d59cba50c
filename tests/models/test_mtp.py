"""Multi-token prediction: the layer's logits, and texts that do not change by its guesses."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot import LLM
from ingot.backends.batch import ExecutionPhase
from ingot.backends.reference import Reference
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.model.mtp_head import MtpHead
from ingot.engine.speculation import AutoSpeculation, engine_guesses
from ingot.engine.speculation.head_proposer import HeadProposer
from ingot.errors import ConfigError, ModelError
from ingot.gguf import GgmlType, GgufLoader
from ingot.models import build_graph, build_mtp_graph, mtp_layer
from models.tiny_models import Fixture, stable_values

GREEDY = {"temperature": 0, "ignore_eos": True}
HOT = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "ignore_eos": True}
NAMES = ("qwen3next", "qwen35", "qwen35moe", "glm4moe", "deepseek2-v3", "glm-dsa")


def with_mtp(name: str, *, own: bool = False, first: int | None = None) -> Fixture:
    """A tiny model with one more layer; `own`: it has an embedding and an output of its own.

    `first`: of its layers only so many.
    """
    base = Fixture.load(name)
    if first is not None:
        base = base.first_layers(first)
    layers = base.metadata["block_count"]
    assert isinstance(layers, int)
    like = next(
        layer
        for layer in reversed(range(layers))
        if f"blk.{layer}.attn_output.weight" in base.shapes
    )
    width = base.shapes["token_embd.weight"][1]
    shapes = {
        key.replace(f"blk.{like}.", f"blk.{layers}."): shape
        for key, shape in base.shapes.items()
        if key.startswith(f"blk.{like}.")
    }
    nextn = {
        "eh_proj.weight": (width, 2 * width),
        "enorm.weight": (width,),
        "hnorm.weight": (width,),
        "shared_head_norm.weight": (width,),
    }
    if own:
        nextn["embed_tokens.weight"] = nextn["shared_head_head.weight"] = (61, width)
    shapes |= {f"blk.{layers}.nextn.{key}": shape for key, shape in nextn.items()}
    metadata = {**base.metadata, "block_count": layers + 1, "nextn_predict_layers": 1}
    for key, value in base.metadata.items():
        if isinstance(value, list) and len(value) == layers:
            metadata[key] = [*value, value[like]]
    constants = {
        key.replace(f"blk.{like}.", f"blk.{layers}."): value
        for key, value in base.constants.items()
    }
    return replace(
        base,
        metadata=metadata,
        shapes={**base.shapes, **shapes},
        constants={**base.constants, **constants},
    )


@pytest.fixture(scope="module", params=NAMES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mtp")
    return with_mtp(request.param, own=request.param == "glm4moe").write(folder / "model.gguf")


@pytest.fixture(scope="module")
def plain(path: Path) -> Iterator[LLM]:
    with LLM(path, threads=1) as opened:
        yield opened


def rms(rows: Any, weight: Any, epsilon: float) -> Any:
    return rows / np.sqrt((rows**2).mean(axis=-1, keepdims=True) + epsilon) * weight


def joined(path: Path, fixture: Fixture, ids: list[int]) -> Any:
    """Rows of the layer, as DeepSeek-V3 defines them, for all tokens but the first."""
    with GgufLoader(path) as file:
        layer = f"blk.{mtp_layer(file)}.nextn"
        hidden = Reference(build_graph(file, hidden=True), file, np.float64).forward(ids)
    tensors, epsilon = fixture.tensors(), fixture.metadata["attention.layer_norm_rms_epsilon"]
    assert isinstance(epsilon, float)
    table = tensors.get(f"{layer}.embed_tokens.weight", tensors["token_embd.weight"])
    return np.concatenate(
        [
            rms(table[ids[1:]].astype(np.float64), tensors[f"{layer}.enorm.weight"], epsilon),
            rms(hidden[:-1].astype(np.float64), tensors[f"{layer}.hnorm.weight"], epsilon),
        ],
        axis=1,
    )


def test_the_main_model_is_the_same_with_all_rows(path: Path) -> None:
    ids, outputs = np.arange(40, dtype=np.int32) % 61, np.array([3, 17, 39], np.int32)
    found = []
    for mtp in (False, True):
        with LoadedModel(path, threads=1, mtp=mtp) as model:
            sequence = model.sequence()
            found.append(model.step([sequence], [ids], outputs, ExecutionPhase.PROMPT))
            sequence.close()
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("own", [False, True])
def test_logits_of_the_layer_are_those_of_the_definition(
    tmp_path: Path, name: str, *, own: bool
) -> None:
    """Read at once and in parts; the tokens of the last part decode."""
    fixture = with_mtp(name, own=own)
    path = fixture.write(tmp_path / "model.gguf")
    ids = (np.arange(40) * 7 % 61).tolist()
    with GgufLoader(path) as file:
        reference = Reference(build_mtp_graph(file), file, np.float64)
        expected = reference.forward(ids[1:], rows=joined(path, fixture, ids))
    with LoadedModel(path, threads=1, mtp=True, kv_type="f32", precision="exact") as model:
        sequence, tokens = model.sequence(), np.array(ids, np.int32)
        model.step([sequence], [tokens], np.array([39], np.int32), ExecutionPhase.PROMPT)
        hidden, head = model.last_hidden(40), MtpHead(model)
        for parts in ((39,), (20, 19), (30, 1, 1, 7)):
            cached, start = head.open(tokens[1:2]), 0
            own_sequence = cached.blocks
            for count in parts:
                part = slice(start + 1, start + 1 + count), slice(start, start + count)
                said = head.next_token(own_sequence, tokens[part[0]], hidden[part[1]])
                start += count
                np.testing.assert_allclose(said.logits, expected[start - 1], rtol=1e-4, atol=1e-4)
            head.cache.close(cached)
        sequence.close()


def test_the_layer_by_hand(tmp_path: Path) -> None:
    """A block of Qwen 3.5 in NumPy alone: gated attention with norms and RoPE, and an MLP."""
    fixture = with_mtp("qwen35")
    path, ids = fixture.write(tmp_path / "model.gguf"), list(range(3, 20))
    rows = joined(path, fixture, ids)
    with GgufLoader(path) as file:
        layer = f"blk.{mtp_layer(file)}"
        found = Reference(build_mtp_graph(file), file, np.float64).forward(ids[1:], rows=rows)
    numbers: Any = fixture.metadata
    epsilon, heads = numbers["attention.layer_norm_rms_epsilon"], numbers["attention.head_count"]
    size, pairs = numbers["attention.key_length"], numbers["rope.dimension_count"] // 2
    angles = np.outer(
        np.arange(len(rows)), numbers["rope.freq_base"] ** (-np.arange(pairs) / pairs)
    )[:, None]

    def weight(name: str) -> Any:
        return fixture.tensors()[f"{layer}.{name}.weight"].astype(np.float64)

    def turned(x: Any) -> Any:
        first, second, rest = np.split(x, [pairs, 2 * pairs], axis=-1)
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], -1)

    stream = rows @ weight("nextn.eh_proj").T
    normed = rms(stream, weight("attn_norm"), epsilon)
    query, gate = np.split(
        (normed @ weight("attn_q").T).reshape(len(rows), heads, 2 * size), 2, axis=-1
    )
    key, value = (
        (normed @ weight(name).T).reshape(len(rows), -1, size) for name in ("attn_k", "attn_v")
    )
    query = turned(rms(query, weight("attn_q_norm"), epsilon))
    key = turned(rms(key, weight("attn_k_norm"), epsilon))
    each = heads // key.shape[1]
    key, value = np.repeat(key, each, axis=1), np.repeat(value, each, axis=1)
    scores = np.einsum("qhd,khd->hqk", query, key) / size**0.5
    scores = np.where(np.tri(len(rows), dtype=bool), scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), value)
    mixed = (mixed / (1 + np.exp(-gate))).reshape(len(rows), -1)
    stream = stream + mixed @ weight("attn_output").T
    normed = rms(stream, weight("post_attention_norm"), epsilon)
    up = normed @ weight("ffn_gate").T
    stream = (
        stream + (up / (1 + np.exp(-up)) * (normed @ weight("ffn_up").T)) @ weight("ffn_down").T
    )
    output = fixture.tensors().get("output.weight", fixture.tensors()["token_embd.weight"])
    logits = rms(stream, weight("nextn.shared_head_norm"), epsilon) @ output.T
    np.testing.assert_allclose(found, logits, rtol=1e-5, atol=1e-5)


def test_guesses_change_no_text(path: Path, plain: LLM) -> None:
    texts = [list(range(40)), [5]]
    asked: list[dict[str, Any]] = [
        {"max_tokens": 40, "logprobs": True, **GREEDY},
        {"max_tokens": 30, "seed": 3, **HOT},
    ]
    expected = [plain.generate(text, **fields) for text in texts for fields in asked]
    with LLM(path, threads=1, speculation="mtp") as llm:
        found = [llm.generate(text, **fields) for text in texts for fields in asked]
        requests = [llm.stream(text, **fields) for text in texts for fields in asked]
        found += [request.result() for request in requests]
        for one, other in zip(found, expected * 2, strict=True):
            assert (one.token_ids, one.logprobs) == (other.token_ids, other.logprobs)
        assert llm.stats.guessed_tokens > 20
        assert llm.stats.blocks_held == 0
        head = llm.engine._parts.guesses._head
        assert head is not None
        pool = head.cache.pool
        assert pool.available(0) == pool.sizes[0]


@pytest.mark.parametrize("name", ["glm4moe", "qwen35"])
def test_a_layer_that_knows_the_model_is_right(tmp_path: Path, name: str) -> None:
    """If nothing but the token counts, model and layer say the same: their blocks add nothing."""
    fixture = with_mtp(name)
    layers = fixture.metadata["block_count"]
    assert isinstance(layers, int)
    width = fixture.shapes["token_embd.weight"][1]
    silent = {
        name: np.zeros(shape, np.float32)
        for name, shape in fixture.shapes.items()
        if "attn_output." in name or "ffn_down" in name or "ssm_out." in name
    }
    nextn = f"blk.{layers - 1}.nextn"
    tied = {
        f"{nextn}.eh_proj.weight": np.eye(width, 2 * width, dtype=np.float32),
        f"{nextn}.enorm.weight": np.ones(width, np.float32),
        f"{nextn}.shared_head_norm.weight": stable_values("output_norm.weight", (width,)),
    }
    path = replace(fixture, constants={**fixture.constants, **silent, **tied}).write(
        tmp_path / "model.gguf"
    )
    with LLM(path, threads=1, speculation="mtp") as llm:
        found = llm.generate([1, 2, 3], max_tokens=100, **GREEDY).token_ids
        assert llm.stats.accepted_tokens > 0.8 * llm.stats.guessed_tokens > 40
        assert llm.stats.text_steps < 40
    with LLM(path, threads=1) as llm:
        assert llm.generate([1, 2, 3], max_tokens=100, **GREEDY).token_ids == found


def test_a_conversation_finds_what_the_layer_has_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the last few tokens; the guesses are those of an engine that reads all of it."""
    guesses: list[tuple[int, list[int]]] = []
    missing, found = set(), []
    opened = MtpHead.open

    def open_and_tell(self: MtpHead, *given: Any, **more: Any) -> Any:
        sequence = opened(self, *given, **more)
        found.append(sequence.length)
        return sequence

    class Spy(HeadProposer):
        def propose(self, tokens: Any, most: int) -> list[int]:
            guess = super().propose(tokens, most)
            guesses.append((len(tokens), guess))
            missing.add(self._missing)
            return guess

    monkeypatch.setattr(MtpHead, "open", open_and_tell)
    monkeypatch.setattr(engine_guesses, "HeadProposer", Spy)
    first, last = (np.arange(70) * 7 % 61).tolist(), [5, 6, 7]
    with LLM(path, threads=1, speculation="mtp") as llm:
        text = [*first, *llm.generate(first, max_tokens=30, **GREEDY).token_ids, *last]
        guesses.clear()
        done = llm.generate(text, max_tokens=20, **GREEDY)
        assert done.timings.reused_tokens > 60
        assert found[0] == 0
        assert found[1] > 55
        again = guesses.copy()
    with LLM(path, threads=1, speculation="mtp", reuse="none") as llm:
        guesses.clear()
        assert llm.generate(text, max_tokens=20, **GREEDY).token_ids == done.token_ids
    assert again == guesses
    assert guesses
    assert missing == {0}


def test_hidden_states_that_come_again_change_nothing(path: Path) -> None:
    """As after a wrong guess of a recurrent model; a text that changed is read again."""
    tokens = (np.arange(60) * 7 % 61).astype(np.int32)
    with LoadedModel(path, threads=1, mtp=True) as model:
        sequence = model.sequence()
        model.step([sequence], [tokens], np.array([59], np.int32), ExecutionPhase.PROMPT)
        hidden, head = model.last_hidden(60), MtpHead(model)
        plain, again = HeadProposer(head), HeadProposer(head)
        for proposer in (plain, again):
            proposer.see(tokens[:40], 0, hidden[:40])
            assert len(proposer.propose(tokens[:41], 3)) == 3
        again.see(tokens[:44], 30, hidden[30:44])
        plain.see(tokens[:44], 40, hidden[40:44])
        again.see(tokens[:44], 20, hidden[20:25])
        begun = again._sequence
        assert again.propose(tokens[:45], 3) == plain.propose(tokens[:45], 3) != []
        assert again._sequence is begun
        other = tokens.copy()
        other[10] += 1
        again.see(other[:45], 0, hidden[:44])
        assert again._sequence is not begun
        for proposer in (plain, again):
            proposer.close()
        sequence.close()


def test_auto_takes_the_layer(path: Path, plain: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AutoSpeculation, "tokens_worth", lambda *_, **__: 3)
    expected = plain.generate([1, 2, 3], max_tokens=40, **GREEDY)
    with LLM(path, threads=1, speculation="auto") as llm:
        assert llm.engine.model.keeps_hidden
        assert llm.generate([1, 2, 3], max_tokens=40, **GREEDY).token_ids == expected.token_ids
        assert llm.stats.guessed_tokens > 0


def test_files_without_such_layers_are_refused(tmp_path: Path) -> None:
    path = Fixture.load("qwen35").write(tmp_path / "model.gguf")
    with pytest.raises(ConfigError, match="has no layers for multi-token prediction"):
        LLM(path, speculation="mtp")
    with LLM(path, threads=1, speculation="auto") as llm:
        assert not llm.engine.model.keeps_hidden


def test_layers_on_several_gpus_are_refused_before_a_gpu_is_looked_for(path: Path) -> None:
    with pytest.raises(ConfigError, match="on one GPU: leave gpu_split out"):
        LoadedModel(path, mtp=True, device="cuda", gpu_split=[1, 1])


def test_missing_parts_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fixture = with_mtp("qwen35")
    for name in ("nextn.hnorm.weight", "ffn_up.weight"):
        shapes = {key: shape for key, shape in fixture.shapes.items() if not key.endswith(name)}
        if name == "ffn_up.weight":
            shapes |= {
                key: shape
                for key, shape in fixture.shapes.items()
                if key.endswith(name) and not key.startswith("blk.5.")
            }
        path = replace(fixture, shapes=shapes).write(tmp_path / "model.gguf")
        with pytest.raises(ModelError, match=rf"tensor blk.5.{name} .*missing"):
            LLM(path, threads=1, speculation="mtp")
        with LLM(path, threads=1, speculation="auto") as llm:
            assert len(llm.generate([1, 2, 3], max_tokens=5, **GREEDY).token_ids) == 5
        assert f"tensor blk.5.{name}" in caplog.text


def test_quantized_files(tmp_path: Path) -> None:
    path = with_mtp("glm4moe").write(tmp_path / "model.gguf", GgmlType.Q8_0)
    with LLM(path, threads=1) as llm:
        expected = llm.generate([1, 2, 3], max_tokens=40, **GREEDY).token_ids
    with LLM(path, threads=1, speculation="mtp") as llm:
        assert llm.generate([1, 2, 3], max_tokens=40, **GREEDY).token_ids == expected
        assert llm.stats.guessed_tokens > 0
