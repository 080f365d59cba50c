"""Whole decoders of every architecture, tiny ones, against what `transformers` computed.

Logits at every position; as a float32 file to 1e-4, as a quantized file against the reference
on the same bytes. A prompt whole, in pieces, token by token, and beside another sequence.

Of the instruction sets (all of which the tests of the operations go through), each model runs on
the best and on one of the others; on all of them, and with more types, in the slow tests.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot import _native
from ingot.api import LLM
from ingot.backends.reference import Cache, Reference
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.ops import Attend
from ingot.models import architectures, build_graph
from models.recipes import RECIPES
from models.tiny_models import Fixture
from run_batches import GENERATION, Runner, using_isa

FLOAT = 1e-4
# Q8_0 weights are the same bytes on both sides; inputs are rounded to 14 or 15 bits.
QUANTIZED = 3e-3
IN_TILES = 5e-2  # AMX rounds a prompt's weights and inputs to BF16


STATES = {"ssm.state_size", "shortconv.l_cache"}  # keys of models that have them
CONTEXT = 96  # tokens of every sequence here
EVERY_SET = [False, pytest.param(True, marks=pytest.mark.oracle)]
Logits = NDArray[np.float32]


DECODERS = [
    name
    for name, recipe in RECIPES.items()
    if not (recipe.encoder or recipe.ranker or recipe.encoder_decoder)
]


@pytest.fixture(scope="module", params=DECODERS)
def fixture(request: pytest.FixtureRequest) -> Fixture:
    return Fixture.load(request.param)


@pytest.fixture(scope="module")
def float_path(fixture: Fixture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixture.write(tmp_path_factory.mktemp("models") / "float.gguf")


@pytest.fixture(scope="module")
def model(float_path: Path) -> Iterator[GgufLoader]:
    with GgufLoader(float_path) as opened:
        yield opened


def assert_within(
    found: NDArray[np.float32], expected: NDArray[np.float32], bound: float, share: float = 1.0
) -> None:
    """Each logit is near, in that share of the rows; they are about 1 in size."""
    assert found.shape == expected.shape
    errors = np.abs(found - expected).max(axis=1)
    assert np.quantile(errors, share) <= bound * max(1.0, float(np.abs(expected).max()))


def rows_within(fixture: Fixture, share: float) -> float:
    """The share of rows that must be near: where experts' scores are near, or what a norm gets from
    a delta rule is nearly 0, rounding changes a few tokens, and those that look at them."""
    return share if fixture.metadata.keys() & {"expert_count", "full_attention_interval"} else 1.0


def instruction_sets(fixture: Fixture, *, every: bool) -> list[str]:
    """The best and another one, or all of them."""
    *others, best = _native.instruction_sets()
    if every or not others:
        return [*others, best]
    return [others[crc32(repr(fixture.shapes).encode()) % len(others)], best]


def forms(graph: ComputationGraph) -> tuple[bool, ...]:
    """Whether latents are expanded: both ways, if there are some."""
    latents = any(isinstance(op, Attend) and op.expansion for op in graph.ops)
    return (False, True) if latents else (False,)


def test_every_architecture_has_a_recipe() -> None:
    assert {recipe.architecture for recipe in RECIPES.values()} == set(architectures())


def test_reference(fixture: Fixture, model: GgufLoader) -> None:
    graph = build_graph(model, CONTEXT)
    single, double = (Reference(graph, model, dtype) for dtype in (np.float32, np.float64))
    assert_within(single.forward(fixture.token_ids), fixture.logits, FLOAT)
    cache = Cache()
    pieces = [fixture.token_ids[:1], fixture.token_ids[1:40], fixture.token_ids[40:]]
    logits = np.concatenate([double.forward(piece, cache) for piece in pieces])
    assert_within(logits, fixture.logits, FLOAT)


@pytest.mark.parametrize("every", EVERY_SET)
def test_float_file(fixture: Fixture, model: GgufLoader, every: bool) -> None:
    ids, expected = fixture.token_ids, fixture.logits
    graph = build_graph(model, CONTEXT)
    for isa in instruction_sets(fixture, every=every):
        with using_isa(isa):
            for expanded in forms(graph):
                runner = Runner(graph, model, positions=CONTEXT, sequences=3, expanded=expanded)
                assert_within(runner.run(ids), expected, FLOAT)
                assert_within(runner.run(ids, chunks=[1, 2, 30, 31]), expected, FLOAT)
                assert_within(runner.run(ids, chunks=[20], generated=25), expected, FLOAT)
                check_two_together(runner, ids, expected)


def check_two_together(runner: Runner, ids: list[int], expected: Logits) -> None:
    """Two sequences in one batch, at different depths: one is ahead and waits for nobody."""
    ahead = [runner.step({"a": ids[:13]})["a"]]
    both = [
        runner.step({"a": ids[13:50], "b": ids[:9]}),
        runner.step({"b": ids[9:12], "a": ids[50:]}),
    ]
    assert_within(np.concatenate(ahead + [step["a"] for step in both]), expected, FLOAT)
    assert_within(np.concatenate([step["b"] for step in both]), expected[:12], FLOAT)
    runner.end("a")
    first = runner.step({"a": ids[:40], "b": ids[12:20]})
    assert_within(first["b"], expected[12:20], FLOAT)
    for at in range(40, 50):
        step = runner.step({"a": [ids[at]], "b": [ids[at - 20]]}, GENERATION)
        assert_within(step["a"], expected[at : at + 1], FLOAT)
        assert_within(step["b"], expected[at - 20 : at - 19], FLOAT)


@pytest.mark.parametrize(
    ("type", "every"),
    [
        (GgmlType.Q8_0, False),
        pytest.param(GgmlType.Q8_0, True, marks=pytest.mark.oracle),
        pytest.param(GgmlType.Q4_0, True, marks=pytest.mark.oracle),
        pytest.param(GgmlType.MXFP4, True, marks=pytest.mark.oracle),
    ],
)
def test_quantized_file(fixture: Fixture, type: GgmlType, every: bool, tmp_path: Path) -> None:
    ids = fixture.token_ids
    with GgufLoader(fixture.write(tmp_path / "quantized.gguf", type)) as model:
        graph = build_graph(model, CONTEXT)
        expected = Reference(graph, model, np.float64).forward(ids)
        if type is GgmlType.Q8_0:  # near the float model too: the right bytes were read
            products = fixture.metadata.keys() & STATES  # of inputs with each other
            rough = fixture.metadata.keys() & {"expert_count", "altup.num_inputs"}
            bound = 0.2 if products or rough else 0.1
            share = min(rows_within(fixture, 0.5), 0.9 if products else 1.0)
            if "full_attention_interval" in fixture.metadata:
                bound = 0.6  # of signs
            # An indexer that has something to choose from chooses other positions.
            rows = fixture.metadata.get("attention.indexer.top_k")
            errors = np.abs(expected - fixture.logits).max(axis=1)[:rows]
            assert np.quantile(errors, share) <= bound
        for isa in instruction_sets(fixture, every=every):
            with using_isa(isa):
                runner = Runner(graph, model, positions=CONTEXT)
                # Four bits leave the scores of more experts nearly equal.
                bound, near = QUANTIZED, 0.75 if type is GgmlType.Q8_0 else 0.5
                share = rows_within(fixture, near)
                if fixture.metadata.keys() & STATES:  # inputs multiply each other
                    bound *= 2
                if isa == "amx":
                    bound, share = IN_TILES, rows_within(fixture, 0.5)
                found = runner.run(ids, chunks=[33], generated=10)
                assert_within(found, expected, bound, share)


@pytest.mark.parametrize(
    "kv_type", ["f32", *(pytest.param(kind, marks=pytest.mark.oracle) for kind in ("f16", "bf16"))]
)
def test_llm_opens_it(fixture: Fixture, float_path: Path, kv_type: str) -> None:
    """The front door gives the same, in the precision of its cache."""
    bound = {"f32": FLOAT, "f16": 1e-2, "bf16": 6e-2}[kv_type]
    with LLM(float_path, threads=1, kv_type=kv_type, context=CONTEXT) as llm:
        share = 1.0 if kv_type == "f32" else rows_within(fixture, 0.5)
        rows = llm.logits(fixture.token_ids)
        assert_within(rows, fixture.logits, bound, share)
        if kv_type == "f32":
            prompt = fixture.token_ids[:50]
            written = llm.generate(prompt, max_tokens=8, temperature=0)
            text = [*prompt, *written.token_ids]
            best = llm.logits(text)[len(prompt) - 1 : -1].argmax(axis=1)
            assert list(written.token_ids) == best.tolist()


def test_layers_for_multi_token_prediction_are_not_read(tmp_path: Path) -> None:
    fixture = Fixture.load("glm4moe")
    layers = fixture.metadata["block_count"]
    extra = {f"blk.{layers}.nextn.enorm.weight": (64,), f"blk.{layers}.attn_q.weight": (120, 64)}
    keys = {"block_count": int(layers) + 1, "nextn_predict_layers": 1}
    with_extra = replace(
        fixture, metadata={**fixture.metadata, **keys}, shapes={**fixture.shapes, **extra}
    )
    with LLM(with_extra.write(tmp_path / "model.gguf"), threads=1, kv_type="f32") as llm:
        assert_within(llm.logits(fixture.token_ids), fixture.logits, FLOAT)
