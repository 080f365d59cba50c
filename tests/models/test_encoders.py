"""Whole encoders, tiny ones, against what `transformers` computed: a hidden row for every token.

And the same of decoders: their rows before the output matrix.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingot import _native
from ingot.api import LLM
from ingot.backends.batch import ExecutionPhase
from ingot.backends.reference import Reference
from ingot.engine import LoadedModel
from ingot.errors import ModelError
from ingot.gguf import GgmlType, GgufLoader
from ingot.models import Pooling, build_graph, pooling
from models.recipes import RECIPES
from models.tiny_models import Fixture
from run_batches import GENERATION, Runner, using_isa

FLOAT = 1e-4
QUANTIZED, IN_TILES = 3e-3, 5e-2  # as in test_models.py
NAMES = [name for name in RECIPES if RECIPES[name].encoder]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reference(name: str, dtype: type, tmp_path: Path) -> None:
    fixture = Fixture.load(name)
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as model:
        rows = Reference(build_graph(model), model, dtype).forward(fixture.token_ids)
    np.testing.assert_allclose(rows, fixture.logits, rtol=0, atol=FLOAT)


@pytest.mark.parametrize("type", [GgmlType.F32, GgmlType.Q8_0])
@pytest.mark.parametrize("name", NAMES)
def test_rows_of_texts_in_one_batch(name: str, type: GgmlType, tmp_path: Path) -> None:
    fixture = Fixture.load(name)
    ids = fixture.token_ids
    texts = {"whole": ids, "start": ids[:33], "one": ids[:1], "end": ids[40:]}
    with GgufLoader(fixture.write(tmp_path / "model.gguf", type)) as model:
        graph = build_graph(model)
        assert graph.hidden
        assert not graph.causal
        reference = Reference(graph, model, np.float64)
        for isa in _native.instruction_sets():
            bound = FLOAT if type is GgmlType.F32 else IN_TILES if isa == "amx" else QUANTIZED
            with using_isa(isa):
                runner = Runner(graph, model, positions=96, sequences=4, threads=2)
                rows = runner.step(texts)
                for text, found in rows.items():
                    expected = reference.forward(texts[text])
                    np.testing.assert_allclose(found, expected, rtol=0, atol=bound * 5)
                if type is GgmlType.F32:
                    np.testing.assert_allclose(rows["whole"], fixture.logits, rtol=0, atol=FLOAT)
                alone = runner.step({"alone": ids[:1]}, GENERATION)["alone"]
                np.testing.assert_allclose(alone, rows["one"], rtol=0, atol=bound * 5)


@pytest.mark.parametrize("name", NAMES)
def test_neither_company_nor_threads_change_a_bit(name: str, tmp_path: Path) -> None:
    fixture = Fixture.load(name)
    ids = fixture.token_ids
    with GgufLoader(fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)) as model:
        graph = build_graph(model)
        alone = Runner(graph, model, positions=96).step({"a": ids})["a"]
        for threads in (1, 3):
            runner = Runner(graph, model, positions=96, sequences=3, threads=threads)
            rows = runner.step({"b": ids[:35], "a": ids, "c": ids[9:]})["a"]
            np.testing.assert_array_equal(rows, alone)


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_encoder_takes_whole_texts(name: str, tmp_path: Path) -> None:
    """As long as the context, however long a step of a decoder is."""
    fixture = Fixture.load(name)
    path = fixture.write(tmp_path / "model.gguf")
    first, second = fixture.token_ids, fixture.token_ids[:20]
    with LoadedModel(path, threads=1, kv_type="f32", cache_tokens=512) as model:
        assert model.step_tokens == model.context == 256
        sequences = [model.sequence(), model.sequence()]
        ids = [np.array(text, np.int32) for text in (first, second)]
        wanted = np.arange(90, dtype=np.int32)
        rows = model.step(sequences, ids, wanted, ExecutionPhase.PROMPT)
        np.testing.assert_allclose(rows[:70], fixture.logits, rtol=0, atol=FLOAT)
        assert np.abs(rows[70:] - fixture.logits[:20]).max() > 0.1  # it sees less of the text


@pytest.mark.parametrize("name", NAMES)
def test_states_for_embeddings(name: str, tmp_path: Path) -> None:
    fixture = Fixture.load(name)
    path = fixture.write(tmp_path / "model.gguf")
    ids = np.array(fixture.token_ids, np.int32)
    with LLM(path, threads=1, kv_type="f32") as llm:
        first, second = llm.engine.programs.hidden.last_states([ids, ids[:20]])
        np.testing.assert_allclose(first, fixture.logits, rtol=0, atol=FLOAT)
        assert len(second) == 20
        states = llm.hidden_states(ids)
        assert states.shape == (1 + len(llm.graph.kv_layers), len(ids), llm.graph.width)
        # A norm may follow the last layer.
        if not fixture.shapes.keys() & {"output_norm.weight", "enc.output_norm.weight"}:
            np.testing.assert_allclose(states[-1], fixture.logits, rtol=0, atol=FLOAT)


@pytest.mark.parametrize("name", NAMES)
def test_an_encoder_writes_no_text(name: str, tmp_path: Path) -> None:
    path = Fixture.load(name).write(tmp_path / "model.gguf")
    with LLM(path, threads=1) as llm:
        for call in (llm.generate, llm.score, llm.logits, llm.beam_search, llm.stream):
            with pytest.raises(ModelError, match=r"model.gguf is an encoder"):
                call([1, 2, 3])


@pytest.mark.parametrize(
    ("name", "kind"),
    [("bert", "cls"), ("nomic-bert", "mean"), ("llama", "mean")],
)
def test_pooling_as_the_file_says(name: str, kind: Pooling, tmp_path: Path) -> None:
    with GgufLoader(Fixture.load(name).write(tmp_path / "model.gguf")) as model:
        assert pooling(model) == kind


def with_pooling_type(number: int) -> Fixture:
    fixture = Fixture.load("bert")
    return replace(fixture, metadata={**fixture.metadata, "pooling_type": number})


@pytest.mark.parametrize("number", range(5))
def test_pooling_by_the_number_in_the_file(number: int, tmp_path: Path) -> None:
    """Those of llama.cpp: none, mean, cls, last, rank."""
    with GgufLoader(with_pooling_type(number).write(tmp_path / "model.gguf")) as model:
        assert pooling(model) == ["mean", "mean", "cls", "last", "mean"][number]


def test_pooling_that_nobody_knows(tmp_path: Path) -> None:
    fixture = with_pooling_type(9)
    with (
        GgufLoader(fixture.write(tmp_path / "model.gguf")) as model,
        pytest.raises(ModelError, match=r"bert.pooling_type is 9"),
    ):
        pooling(model)


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen2"])
def test_hidden_rows_of_a_decoder(name: str, tmp_path: Path) -> None:
    """What the output matrix makes of them are the logits."""
    fixture = Fixture.load(name)
    ids = fixture.token_ids
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as model:
        graph = build_graph(model, hidden=True)
        assert graph.hidden
        assert graph.causal
        rows = Runner(graph, model, positions=96).run(ids, chunks=[30], generated=9)
        expected = Reference(graph, model, np.float64).forward(ids)
        np.testing.assert_allclose(rows, expected, rtol=0, atol=FLOAT * 5)
    tensors = fixture.tensors()
    output = tensors.get("output.weight", tensors["token_embd.weight"])
    np.testing.assert_allclose(rows @ output.T, fixture.logits, rtol=0, atol=FLOAT * 5)
