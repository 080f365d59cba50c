"""Adapters on the CPU: the reference's logits, and the same bits alone and among others."""

from functools import partial

import numpy as np
import pytest

from ingot import _native
from ingot.adapters import Adapter, combined
from ingot.backends.precision import Precision
from ingot.backends.reference import Reference
from run_batches import GENERATION, PROMPT, Runner, using_isa
from tiny_adapters import EVERYTHING, LINEAR, TinyModel, assert_close
from tiny_llama import LAYERS

IDS = [256, 72, 101, 108, 108, 111, 32, 116, 104, 101, 114, 101]


class Models(TinyModel):
    """With programs that run it."""

    def runner(self, *adapters: Adapter, threads: int = 1, sequences: int = 8) -> Runner:
        runner = Runner(self.graph, self.file, threads=threads, sequences=sequences)
        for slot, adapter in enumerate(adapters):
            runner.backend.attach(slot, adapter)
        return runner

    def wanted(self, adapter: Adapter | None, scale: float = 1.0) -> np.ndarray:
        return self.reference(IDS, adapter, scale)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("adapters"))


assert_same = partial(assert_close, part=2e-3)


@pytest.mark.parametrize("isa", _native.instruction_sets())
@pytest.mark.parametrize("generated", [0, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_all_matrices_give_the_reference_logits(
    models: Models, isa: str, generated: int, dtype: type
) -> None:
    adapter = models.adapter(rank=5, seed=1, dtype=dtype)
    wanted = models.wanted(adapter, 0.75)
    with using_isa(isa):
        runner = models.runner(adapter)
        found = runner.run(IDS, generated=generated, adapter=(0, 0.75))
    assert_same(found, wanted)
    plain = models.wanted(None)
    assert np.abs(wanted - plain).max() > 0.1 * np.abs(plain).max()


@pytest.mark.parametrize("name", [*LINEAR, "token_embd", "output"])
def test_each_matrix_alone(models: Models, name: str) -> None:
    layer = f"blk.{LAYERS - 1}." if name in LINEAR else ""
    adapter = models.adapter(names=[f"{layer}{name}.weight"], rank=3, seed=2)
    wanted = models.wanted(adapter)
    assert_same(models.runner(adapter).run(IDS, generated=4, adapter=(0, 1.0)), wanted)
    assert np.abs(wanted - models.wanted(None)).max() > 1e-3


@pytest.mark.parametrize("rank", [1, 2, 7, 16, 33, 100])
def test_odd_ranks(models: Models, rank: int) -> None:
    adapter = models.adapter(rank=rank, seed=rank)
    assert_same(
        models.runner(adapter).run(IDS, generated=3, adapter=(0, 0.1)),
        models.wanted(adapter, 0.1),
    )


def test_the_same_bits_alone_and_among_others(models: Models) -> None:
    ranks = (1, 4, 7, 9, 16, 17, 32, 40)
    adapters = [models.adapter(rank=rank, seed=rank) for rank in ranks]
    alone = {}
    for number, adapter in enumerate(adapters):
        runner = models.runner(adapter, threads=1)
        alone[number] = runner.run(IDS, generated=4, adapter=(0, 0.5))
    plain = models.runner(threads=1).run(IDS, generated=4)

    runner = models.runner(*reversed(adapters), threads=2, sequences=12)
    uses = {number: (len(ranks) - 1 - number, 0.5) for number in alone} | {"plain": None}
    rows = {name: [] for name in uses}
    for start, end, phase in [(0, 5, PROMPT), (5, 8, PROMPT)] + [
        (at, at + 1, GENERATION) for at in range(8, 12)
    ]:
        found = runner.step(dict.fromkeys(uses, IDS[start:end]), phase, adapters=uses)
        for name, logits in found.items():
            rows[name].append(logits)
    for number, wanted in alone.items():
        np.testing.assert_array_equal(np.concatenate(rows[number]), wanted)
    np.testing.assert_array_equal(np.concatenate(rows["plain"]), plain)


def test_several_rows_of_one_adapter_and_rows_of_none(models: Models) -> None:
    one, other = models.adapter(rank=6, seed=11), models.adapter(rank=3, seed=12)
    runner = models.runner(one, other)
    uses = {"a": (0, 1.0), "b": None, "c": (1, 1.0), "d": (0, 0.25), "e": (0, 1.0)}
    found = runner.step(dict.fromkeys(uses, IDS), adapters=uses)
    np.testing.assert_array_equal(found["a"], found["e"])
    assert_same(found["a"], models.wanted(one))
    assert_same(found["b"], models.wanted(None))
    assert_same(found["c"], models.wanted(other))
    assert_same(found["d"], models.wanted(one, 0.25))


def test_a_slot_that_was_freed_adds_nothing_and_takes_another_adapter(models: Models) -> None:
    one, other = models.adapter(rank=6, seed=21), models.adapter(rank=2, names=EVERYTHING[:3])
    runner = models.runner(one)
    plain = models.runner().run(IDS)
    runner.backend.attach(0, None)
    np.testing.assert_array_equal(runner.run(IDS, adapter=(0, 1.0)), plain)
    runner.backend.attach(0, other)
    assert_same(runner.run(IDS, adapter=(0, 1.0)), models.wanted(other))
    np.testing.assert_array_equal(runner.run(IDS), plain)


def test_only_wanted_rows(models: Models) -> None:
    """The adapter of the output matrix belongs to the token, not to the row of the logits."""
    adapter = models.adapter(rank=4, seed=31)
    runner = models.runner(adapter)
    uses = {"plain": None, "adapted": (0, 1.0)}
    found = runner.step(
        dict.fromkeys(uses, IDS), adapters=uses, outputs=[len(IDS) - 1, 2 * len(IDS) - 1]
    )
    assert_same(found["plain"][0], models.wanted(None)[-1])
    assert_same(found["adapted"][0], models.wanted(adapter)[-1])


def test_a_combination_adds_what_its_parts_add(models: Models) -> None:
    one = models.adapter(rank=3, seed=41)
    other = models.adapter(rank=5, seed=42, names=EVERYTHING[2:])
    both = combined([(one, 0.5), (other, -0.25)])
    reference = Reference(models.graph, models.file, np.float64)

    def added(name: str) -> np.ndarray:
        total = 0.0
        for adapter, scale in ((one, 0.5), (other, -0.25)):
            if low := adapter.tensors.get(name):
                table = name == "token_embd.weight"
                down, up = low.down.floats(), low.up.floats()
                product = down @ up.T if table else up @ down
                total = total + scale * low.scale * product
        return np.asarray(total)

    for name, low in both.tensors.items():
        down, up = low.down.floats(), low.up.floats()
        product = down @ up.T if name == "token_embd.weight" else up @ down
        np.testing.assert_allclose(low.scale * product, added(name), atol=1e-5)
    assert_same(
        models.runner(both).run(IDS, adapter=(0, 1.0)), reference.forward(IDS, adapter=both)
    )


def test_fast_precision(models: Models) -> None:
    adapter = models.adapter(rank=4, seed=51)
    runner = Runner(models.graph, models.file, precision=Precision.FAST)
    runner.backend.attach(0, adapter)
    found, wanted = runner.run(IDS, adapter=(0, 1.0)), models.wanted(adapter)
    np.testing.assert_allclose(found, wanted, atol=5e-2 * np.abs(wanted).max())


def test_a_batch_that_names_a_slot_without_adapter_is_refused(models: Models) -> None:
    with pytest.raises(ValueError, match="adapter 3 is not there"):
        models.runner().run(IDS, adapter=(3, 1.0))
