"""Copies of matrices with their rows interleaved: the same bits, whenever they come."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ingot import LLM, _native
from ingot.adapters import Adapter, FloatMatrix, LowRank
from ingot.backends.cpu import Copies, Repacking
from ingot.backends.precision import Precision
from ingot.errors import MemoryShortageError
from ingot.gguf import GgmlType, GgufLoader, GgufWriter
from ingot.graph import ComputationGraph
from ingot.memory_estimate import estimate_copies
from ingot.models import build_graph
from ingot.quantize import plan
from ingot.quantize.mixes import MIXES
from models.tiny_models import VOCABULARY, Fixture
from run_batches import GENERATION, Runner, using_isa
from tiny_llama import Sizes, write_tiny_llama

WIDE = Sizes(width=256, heads=4, kv_heads=1, feed_forward=512, context=256)
TEXT = np.random.default_rng(1).integers(0, VOCABULARY, 60).tolist()


def wide_llama() -> Fixture:
    """A model whose rows are whole blocks of 256."""
    return Fixture(
        architecture="llama",
        metadata=WIDE.metadata(),
        shapes=WIDE.shapes(VOCABULARY),
        constants={},
        token_ids=[],
        logits=np.zeros((1, VOCABULARY), np.float32),
    )


MODELS: dict[str, tuple[Callable[[], Fixture], GgmlType]] = {
    "q4_k": (wide_llama, GgmlType.Q4_K),
    "q6_k": (wide_llama, GgmlType.Q6_K),
    "q4_0": (lambda: Fixture.load("qwen2"), GgmlType.Q4_0),
    "experts": (lambda: Fixture.load("gpt-oss"), GgmlType.MXFP4),
    "gate and up in one": (lambda: Fixture.load("llama4"), GgmlType.Q4_0),
}


@pytest.fixture(params=MODELS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> GgufLoader:
    fixture, type = MODELS[request.param]
    return GgufLoader(fixture().write(tmp_path / "model.gguf", type))


def run(runner: Runner, copies: int) -> list[np.ndarray]:
    """A prompt, then tokens alone and in company; so many copies are made before each step."""

    def copy() -> None:
        for _ in range(copies):
            runner.backend.copy_next()

    copy()
    results = list(runner.step({"a": TEXT[:50], "b": TEXT[:7]}).values())
    for at in range(50, 60):
        copy()
        tokens = {"a": [TEXT[at]]} if at % 2 else {"a": [TEXT[at]], "b": [TEXT[at]]}
        results += runner.step(tokens, GENERATION).values()
    return results


def adding_nothing(graph: ComputationGraph, rank: int) -> Adapter:
    """An adapter of all matrices whose second matrices are zero."""
    adapted = [w for op in graph.ops if op.layer is not None for w in op.adapted_matrices]
    shapes = {weight.name: weight.tensor_shape for weight in adapted}

    def matrix(value: float, rows: int, columns: int) -> FloatMatrix:
        return FloatMatrix.of(np.full((rows, columns), value, np.float16))

    return Adapter(
        "nothing",
        {
            name: LowRank(matrix(0.1, rank, columns), matrix(0.0, rows, rank), 1.0)
            for name, (rows, columns) in shapes.items()
        },
    )


@pytest.mark.parametrize("copies", [0, 1, 1000])
@pytest.mark.parametrize("precision", Precision)
def test_adapters_that_add_nothing_change_no_bit(
    file: GgufLoader, precision: Precision, copies: int
) -> None:
    """Matrices are multiplied in other groups of rows beside adapters, whenever a copy comes."""
    graph = build_graph(file)

    def steps(uses: dict[object, tuple[int, float] | None]) -> list[np.ndarray]:
        runner = Runner(
            graph, file, precision=precision, positions=64, sequences=len(uses), threads=2
        )
        for slot in range(4):
            runner.backend.attach(slot, adding_nothing(graph, rank=3 + slot))
        results = list(runner.step(dict.fromkeys(uses, TEXT[:4]), adapters=uses).values())
        for at in range(4, 14):
            for _ in range(copies):
                runner.backend.copy_next()
            tokens = {name: [TEXT[at]] for name in list(uses)[at % 2 * 6 :]}
            results += runner.step(tokens, GENERATION, adapters=uses).values()
        return results

    expected = steps(dict.fromkeys(range(9)))
    found = steps({number: (number % 4, 1.0) if number % 5 else None for number in range(9)})
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("isa", _native.instruction_sets())
def test_a_model_gives_the_same_bits(file: GgufLoader, isa: str) -> None:
    with using_isa(isa):
        graph = build_graph(file)
        sizes = {"precision": Precision.FAST, "positions": 64, "sequences": 2, "threads": 2}
        expected = run(Runner(graph, file, **sizes), copies=0)
        for copies in (1, 1000):
            runner = Runner(graph, file, **sizes)
            assert (runner.backend.copied_bytes > 0) == (isa != "scalar")
            for ours, theirs in zip(run(runner, copies), expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_exact_products_have_no_copies(tmp_path: Path) -> None:
    path = wide_llama().write(tmp_path / "model.gguf", GgmlType.Q4_K)
    with GgufLoader(path) as file:
        runner = Runner(build_graph(file), file, precision=Precision.EXACT)
        assert runner.backend.copied_bytes == 0
        assert not runner.backend.copy_next()


needs_copies = pytest.mark.skipif(
    _native.interleaved_rows(int(GgmlType.Q4_0), _native.CODES["Precision"].FAST) == 0,
    reason="this CPU has no interleaved copies",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model with a vocabulary, quantized."""
    with GgufLoader(write_tiny_llama(tmp_path / "plain.gguf")) as plain:
        return plan(plain, MIXES["Q4_0"], allow_requantize=True).write(tmp_path / "model.gguf")[0]


def answer(llm: LLM) -> str:
    return llm.generate("abc", max_tokens=20, temperature=0, ignore_eos=True).text


@needs_copies
def test_a_text_goes_on_while_matrices_are_copied(path: Path) -> None:
    with LLM(path, threads=1, weights="map") as llm:
        expected = answer(llm)
        assert llm.engine.model.repacking is None
    for weights in ("auto", "repack"):
        with LLM(path, threads=1, weights=weights) as llm:
            assert answer(llm) == expected
            llm.engine.model.repacking.wait()
            assert answer(llm) == expected


@needs_copies
@pytest.mark.parametrize("tokens", [32, 4096])
def test_copies_are_made_if_the_cache_leaves_memory_to_spare(
    path: Path, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    """The cache and the arena are counted, though steps have not touched their pages yet."""
    sizes = {"threads": 1, "context": 32, "cache_tokens": tokens}
    with LLM(path, weights="repack", **sizes) as llm:
        model = llm.engine.model
        size, arena = model.repacking.size, model._cpu_backend.arena_bytes
        pools = model._cpu_backend.pools
    cache = sum(pool.nbytes for pool in pools)
    assert cache == tokens * 2 * 2 * 32 * 2  # layers, key and value, a head, half floats
    assert arena > 0

    def opened(weights: str, available: int) -> bool:
        monkeypatch.setattr("ingot.engine.model.memory.available", lambda: available)
        with LLM(path, weights=weights, **sizes) as llm:
            return llm.engine.model.repacking is not None

    spare = 2 * size + cache + arena
    assert opened("auto", spare)
    assert not opened("auto", spare - 1)
    assert opened("repack", size + cache + arena)
    with pytest.raises(MemoryShortageError, match=r"weights='repack'.* takes .* weights='map'"):
        opened("repack", size + cache + arena - 1)


def test_copies_say_what_they_take_and_what_becomes_of_the_file() -> None:
    assert Copies(3 << 29, replace=True).remark == (
        "1.50 GiB of weights are copied in the background, in the order in which the CPU reads "
        "them; the pages of the file are given back after that"
    )
    assert Copies(3 << 19, replace=False).remark.startswith("1.5 MiB of weights are copied")
    assert Copies(3 << 19, replace=False).remark.endswith("the pages of the file stay in use")


@needs_copies
def test_what_is_copied_is_said_when_a_model_is_opened(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="ingot"), LLM(path, threads=1) as llm:
        copies = llm.engine.model.copies
        assert copies.size == llm.engine.model.repacking.size == llm.stats.copied_bytes
        assert copies.replace == llm.engine.model._cpu_backend.copies_replace
    assert copies.remark in caplog.text
    caplog.clear()
    with caplog.at_level("INFO", logger="ingot"), LLM(path, threads=1, weights="map") as llm:
        assert llm.engine.model.copies is None
        assert llm.stats.copied_bytes == 0
    assert "in the background" not in caplog.text


@needs_copies
def test_copies_of_a_file_that_is_not_mapped_give_nothing_back(path: Path) -> None:
    with GgufLoader(path, mapped=False) as file:
        assert not estimate_copies(file).replace


@needs_copies
def test_an_estimate_knows_what_an_open_model_copies(path: Path) -> None:
    with LLM(path, threads=1) as llm, GgufLoader(path) as file:
        assert estimate_copies(file) == llm.engine.model.copies


def test_a_file_that_cannot_run_has_no_copies(tmp_path: Path) -> None:
    writer = GgufWriter(tmp_path / "empty.gguf")
    writer.add("general.architecture", "unheard-of")
    writer.write()
    with GgufLoader(tmp_path / "empty.gguf") as file:
        assert estimate_copies(file) is None


class Slow:
    """A backend whose copies are counted."""

    copied_bytes = 1

    def __init__(self, *, total: int = 1000) -> None:
        self.copied, self.total = 0, total

    def copy_next(self) -> bool:
        if self.copied == self.total:
            return False
        self.copied += 1
        return True


def test_all_is_copied_and_its_end_told() -> None:
    ends: list[int] = []
    backend = Slow()
    Repacking(backend, lambda: True, lambda: ends.append(backend.copied)).wait()
    assert ends == [1000]


def test_nothing_is_copied_from_a_changed_file() -> None:
    backend, ends = Slow(), []
    Repacking(backend, lambda: backend.copied < 3, lambda: ends.append(0)).wait()
    assert (backend.copied, ends) == (3, [])


def test_closing_does_not_wait_for_all_of_it() -> None:
    backend = Slow(total=10**12)
    Repacking(backend, lambda: True, lambda: None).close()
    assert backend.copied < 10**12


def test_memory_that_is_gone_ends_it() -> None:
    class Full(Slow):
        def copy_next(self) -> bool:
            raise MemoryError

    ends: list[int] = []
    Repacking(Full(), lambda: True, lambda: ends.append(0)).wait()
    assert not ends


@pytest.mark.skipif(not hasattr(os, "setpriority"), reason="no priorities of threads")
def test_the_thread_lets_others_go_first() -> None:
    seen: list[int] = []
    Repacking(
        Slow(total=0), lambda: True, lambda: seen.append(os.getpriority(os.PRIO_PROCESS, 0))
    ).wait()
    assert seen == [max(os.getpriority(os.PRIO_PROCESS, 0), 10)]
