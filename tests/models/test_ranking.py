"""Rerankers: scores of pairs of texts, against what `transformers` computed."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot import LLM, Tokenizer
from ingot.backends.reference import Reference
from ingot.engine.model.rerank_pairs import PairEncoder
from ingot.errors import ContextLengthError, ModelError
from ingot.gguf import GgufLoader, GgufWriter, ValueType
from ingot.models import build_graph
from models.tiny_models import PAIR_LENGTHS, Fixture, pair_types

FIXTURE = Fixture.load("bert-rank")
PAIRS = [FIXTURE.token_ids[:length] for length in PAIR_LENGTHS]
TYPES = [pair_types(length) for length in PAIR_LENGTHS]


def changed(metadata: Mapping[str, Any], **shapes: tuple[int, ...] | None) -> Fixture:
    """The model with other keys, and tensors of other shapes or none."""
    named = {name.replace("__", "."): shape for name, shape in shapes.items()}
    kept = {name: shape for name, shape in {**FIXTURE.shapes, **named}.items() if shape}
    return replace(FIXTURE, metadata={**FIXTURE.metadata, **metadata}, shapes=kept)


def test_scores_are_those_of_transformers(tmp_path: Path) -> None:
    with GgufLoader(FIXTURE.write(tmp_path / "model.gguf")) as model:
        graph = build_graph(model)
        assert (graph.scores, graph.hidden) == (True, False)
        reference = Reference(graph, model, np.float64)
        for ids, types, score in zip(PAIRS, TYPES, FIXTURE.logits, strict=True):
            found = reference.forward(ids, outputs=[0], types=types)
            np.testing.assert_allclose(found, [score], rtol=0, atol=1e-5)
            assert abs(reference.forward(ids, outputs=[0])[0, 0] - score[0]) > 1e-3


@pytest.mark.usefixtures("isa")
def test_pairs_run_together_as_alone(tmp_path: Path) -> None:
    with LLM(FIXTURE.write(tmp_path / "model.gguf"), threads=2, kv_type="f32") as llm:
        tokens, types = (
            [np.array(row, np.int32) for row in rows] for rows in (PAIRS * 3, TYPES * 3)
        )
        together = llm.engine.programs.ranker.scores(tokens, types)
        np.testing.assert_allclose(together, np.tile(FIXTURE.logits, (3, 1)), rtol=0, atol=1e-4)
        for ids, kinds, score in zip(tokens, types, together, strict=True):
            assert llm.engine.programs.ranker.scores([ids], [kinds])[0] == score


@pytest.mark.parametrize("separated", [False, True])
def test_a_query_and_documents(tmp_path: Path, separated: bool) -> None:
    keys = {"tokenizer.ggml.add_eos_token": True, "tokenizer.ggml.seperator_token_id": 5}
    model = changed({**keys, "tokenizer.ggml.add_sep_token": separated})
    with LLM(model.write(tmp_path / "model.gguf"), threads=1) as llm:
        scores = llm.rerank("t7", ["t9 t8", "t11"])
        assert scores.shape == (2,)
        between = [5] if separated else []
        query, *documents = (llm.tokenize(text)[1:] for text in ("t7", "t9 t8", "t11"))
        for score, document in zip(scores, documents, strict=True):
            first = [1, *query, *between]  # each text ends with its EOS
            types = [0] * len(first) + [1] * len(document)
            ids = np.array(first + document, np.int32)
            assert ids[-1] == query[-1] == 2
            assert (
                llm.engine.programs.ranker.scores([ids], [np.array(types, np.int32)])[0, 0] == score
            )
        assert llm.rerank("t7", []).shape == (0,)
        with pytest.raises(ContextLengthError, match="cut the document"):
            llm.rerank("t7", ["t9 " * 300])


def test_heads_of_one_matrix(tmp_path: Path) -> None:
    """Either can be missing; and one row may be a vector."""
    plain = changed({}, cls__weight=None, cls__bias=None, cls__output__weight=(60,))
    dense = changed(
        {},
        cls__weight=(1, 60),
        cls__bias=None,
        cls__output__weight=None,
        cls__output__bias=None,
    )
    for model, squash in ((plain, np.array), (dense, np.tanh)):
        with LLM(model.write(tmp_path / "model.gguf"), threads=1, kv_type="f32") as llm:
            tensors = model.tensors()
            (state,) = llm.engine.programs.hidden.last_states([np.array(PAIRS[0], np.int32)])
            weight = tensors.get("cls.output.weight", tensors.get("cls.weight")).reshape(-1)
            bias = tensors.get("cls.output.bias", np.zeros(1))
            zeros = np.zeros(len(PAIRS[0]), np.int32)
            found = llm.engine.programs.ranker.scores([np.array(PAIRS[0], np.int32)], [zeros])
            np.testing.assert_allclose(found[0], squash(state[0] @ weight + bias), atol=1e-4)


def test_what_a_reranker_does_not_do(tmp_path: Path) -> None:
    with LLM(FIXTURE.write(tmp_path / "model.gguf"), threads=1) as llm:
        for call in (llm.generate, llm.score, llm.logits):
            with pytest.raises(ModelError, match=r"model.gguf is a reranker: .*LLM.rerank"):
                call([1, 2, 3])
        assert llm.embed("t1 t2").shape == (60,)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_a_model_without_a_head(name: str, tmp_path: Path) -> None:
    with (
        LLM(Fixture.load(name).write(tmp_path / "model.gguf"), threads=1) as llm,
        pytest.raises(ModelError, match=r"model.gguf has no head .* use embed"),
    ):
        llm.rerank("t1", ["t2"])


def test_a_head_of_several_outputs_is_no_reranker(tmp_path: Path) -> None:
    model = changed({}, cls__output__weight=(3, 60), cls__output__bias=(3,))
    with (
        LLM(model.write(tmp_path / "model.gguf"), threads=1) as llm,
        pytest.raises(ModelError, match="has a head of 3 outputs"),
    ):
        llm.rerank("t1", ["t2"])


def test_scores_of_a_model_without_types(tmp_path: Path) -> None:
    """Its positions are those after the ones that it never uses."""
    fixture = Fixture.load("bert-roberta-rank")
    with LLM(fixture.write(tmp_path / "model.gguf"), threads=1, kv_type="f32") as llm:
        texts = [np.array(ids, np.int32) for ids in PAIRS]
        found = llm.engine.programs.ranker.scores(texts, [np.zeros_like(text) for text in texts])
        np.testing.assert_allclose(found, fixture.logits, rtol=0, atol=1e-4)


TEMPLATE = "t3 {query} t4 {document} t5"


def ranked_by_answer(**keys: Any) -> Fixture:
    """A decoder whose last row answers with yes or no."""
    fixture = Fixture.load("qwen3-rank")
    return replace(fixture, metadata={**fixture.metadata, **keys})


def with_template(template: str) -> Fixture:
    return ranked_by_answer(**{"tokenizer.chat_template.rerank": template})


def probability(row: Any) -> float:
    return float(1 / (1 + np.exp(row[1] - row[0])))


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("step", [512, 16])
def test_a_decoder_answers_after_the_last_token(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a pair takes several steps."""
    monkeypatch.setattr("ingot.engine.model.placement.STEP_TOKENS", step)
    fixture = ranked_by_answer()
    with LLM(fixture.write(tmp_path / "model.gguf"), threads=1, kv_type="f32") as llm:
        assert llm.engine.model.step_tokens == step
        texts = [np.array(fixture.token_ids[:length], np.int32) for length in PAIR_LENGTHS]
        found = llm.engine.programs.ranker.scores(texts, [np.zeros_like(text) for text in texts])
        np.testing.assert_allclose(found, fixture.logits, rtol=0, atol=1e-4)


def test_the_template_of_the_file_holds_query_and_document(tmp_path: Path) -> None:
    fixture = with_template(TEMPLATE)
    with (
        LLM(fixture.write(tmp_path / "model.gguf"), threads=1, kv_type="f32") as llm,
        GgufLoader(tmp_path / "model.gguf") as model,
    ):
        scores = llm.rerank("t7 {document}", ["t9", "t11 t12"])
        reference = Reference(build_graph(model), model, np.float64)
        for score, document in zip(scores, ["t9", "t11 t12"], strict=True):
            text = f"t3 t7 {{document}} t4 {document} t5"
            ids = llm.tokenize(text, add_special=False)
            assert score == pytest.approx(probability(reference.forward(ids)[-1]), abs=1e-4)
        with pytest.raises(ContextLengthError, match="with the file's template do not fit"):
            llm.rerank("t7", ["t9 " * 300])


def test_texts_of_a_pair_never_become_control_tokens(tmp_path: Path) -> None:
    writer = GgufWriter(tmp_path / "vocabulary.gguf")
    tokens = ["<unk>", "<s>", "</s>", "\u2581", "<", "s", ">", "/"]
    kinds = [2, 3, 3, 1, 1, 1, 1, 1]
    writer.add("general.architecture", "qwen3")
    writer.add("tokenizer.ggml.model", "llama")
    writer.add("tokenizer.ggml.tokens", tokens, ValueType.STRING)
    writer.add("tokenizer.ggml.scores", [0.0] * len(tokens), ValueType.FLOAT32)
    writer.add("tokenizer.ggml.token_type", kinds, ValueType.INT32)
    writer.write()
    tokenizer = Tokenizer.from_gguf(tmp_path / "vocabulary.gguf")
    path = with_template("<s>{query}</s>{document}<s>").write(tmp_path / "model.gguf")
    with LLM(path, threads=1) as llm:
        ids, _ = PairEncoder(llm.engine.model, tokenizer).encode("</s>", "<s>")
    plain = [tokens[token] for token in ids if tokens[token] != "\u2581"]
    assert plain == ["<s>", "<", "/", "s", ">", "</s>", "<", "s", ">", "<s>"]


@pytest.mark.parametrize("template", ["{query}", "{document}", "{{ query }}"])
def test_a_template_without_places(template: str, tmp_path: Path) -> None:
    with (
        LLM(with_template(template).write(tmp_path / "model.gguf"), threads=1) as llm,
        pytest.raises(ModelError, match=r"must have places for {query} and {document}"),
    ):
        llm.rerank("t1", ["t2"])


def test_two_outputs_that_are_no_answers(tmp_path: Path) -> None:
    fixture = ranked_by_answer(**{"classifier.output_labels": ["cat", "dog"]})
    with (
        LLM(fixture.write(tmp_path / "model.gguf"), threads=1) as llm,
        pytest.raises(ModelError, match="has a head of 2 outputs"),
    ):
        llm.rerank("t1", ["t2"])
