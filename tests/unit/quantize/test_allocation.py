"""Types for a size: the least loss that fits, from measured losses and errors of types."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from ingot.errors import QuantError
from ingot.gguf import GgmlType as T
from ingot.gguf import GgufLoader, GgufWriter
from ingot.quant import decode, encode
from ingot.quantize.allocation import (
    Choice,
    Errors,
    allocate,
    candidates,
    groups_of,
    losses_of,
    matrices_of,
    nearest_mix,
    size_as,
)
from ingot.quantize.imatrix import ImportanceMatrix

NOTHING = ImportanceMatrix(Path("nothing"), {})


def write_model(path: Path, type: T = T.F16) -> Path:
    rng = np.random.default_rng(1)
    writer = GgufWriter(path)
    writer.add("general.architecture", "llama")
    for layer in range(5):
        for name, shape in (("attn_q", (8, 256)), ("ffn_up", (6, 96)), ("ffn_norm", (96,))):
            kind = type if len(shape) > 1 else T.F32
            values = encode(rng.standard_normal(shape), kind)
            writer.add_tensor(f"blk.{layer}.{name}.weight", values, kind, shape)
    return writer.write()[0]


@pytest.fixture
def model(tmp_path: Path):
    with GgufLoader(write_model(tmp_path / "model.gguf")) as loader:
        yield loader


def test_candidates_fit_the_rows(model: GgufLoader) -> None:
    blocks_of_32 = [T.IQ4_NL, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0]
    assert candidates(model.tensors["blk.0.ffn_up.weight"]) == [*blocks_of_32, T.F16]
    found = candidates(model.tensors["blk.0.attn_q.weight"])
    assert found[:2] == [T.IQ1_S, T.IQ1_M]
    assert found[-2:] == [T.Q8_0, T.F16]


def test_errors_fall_with_bits(model: GgufLoader) -> None:
    errors = Errors.measure(model.tensors["blk.0.attn_q.weight"], NOTHING).of
    assert errors[T.F16] == 0
    assert errors[T.IQ1_S] > errors[T.IQ2_S] > errors[T.IQ3_S] > errors[T.Q4_K] > errors[T.Q8_0] > 0


def test_the_probe_is_near_and_has_an_error() -> None:
    errors = Errors({T.IQ4_NL: 1.0, T.Q4_1: 1e-6, T.Q5_0: 0.3, T.Q5_1: 1e-6, T.F16: 0.0})
    assert errors.probe(2.0) is T.IQ4_NL
    assert errors.probe(5.1) is errors.probe(16.0) is T.Q5_0
    assert Errors({T.Q4_0: 0.0, T.Q8_0: 0.0}).probe(8.0) is T.Q8_0


def test_weights_on_the_grid_of_a_type_get_it(tmp_path: Path) -> None:
    """Q4_1 keeps what was Q4_1: more bits would be wasted."""
    values = np.random.default_rng(2).standard_normal((64, 96))
    grid = decode(encode(values, T.Q4_1), T.Q4_1, values.shape)
    writer = GgufWriter(tmp_path / "grid.gguf")
    writer.add("general.architecture", "llama")
    writer.add_tensor("blk.0.ffn_up.weight", encode(grid, T.F16), T.F16, grid.shape)
    with GgufLoader(writer.write()[0]) as loader:
        tensor = loader.tensors["blk.0.ffn_up.weight"]
        errors = Errors.measure(tensor, NOTHING)
        assert errors.of[T.Q4_1] < 0.01 * errors.of[T.Q5_0]
        choices = losses_of([tensor], {tensor.name: errors}, {tensor.name: errors.probe(5)}, 1.0)
        assert allocate(choices, size_as(tensor, T.Q5_0)) == {tensor.name: T.Q4_1}


def test_groups(model: GgufLoader) -> None:
    tensors = matrices_of(model)
    assert [t.name for t in tensors] == [
        f"blk.{layer}.{name}.weight" for layer in range(5) for name in ("attn_q", "ffn_up")
    ]
    assert [len(group) for group in groups_of(tensors, 10)] == [1] * 10
    assert [len(group) for group in groups_of(tensors, 4)] == [3, 2, 3, 2]
    assert [len(group) for group in groups_of(tensors, 1)] == [5, 5]
    assert [t.name[:6] for t in groups_of(tensors, 4)[1]] == ["blk.3.", "blk.4."]


def test_losses_follow_the_errors(model: GgufLoader) -> None:
    group = matrices_of(model)[:2]
    errors = {"blk.0.attn_q.weight": Errors({T.Q4_K: 3.0, T.Q8_0: 0.3})}
    errors["blk.0.ffn_up.weight"] = Errors({T.IQ4_NL: 1.0, T.Q8_0: 0.2})
    probes = {"blk.0.attn_q.weight": T.Q4_K, "blk.0.ffn_up.weight": T.IQ4_NL}
    first, second = losses_of(group, errors, probes, 0.8)
    assert [(kind, round(loss, 6)) for kind, _, loss in first.options] == [
        (T.Q4_K, 0.6), (T.Q8_0, 0.06)
    ]  # fmt: skip
    assert [round(loss, 6) for *_, loss in second.options] == [0.2, 0.04]
    assert first.options[0][1] == size_as(group[0], T.Q4_K) == 8 * 144


def test_the_least_loss_that_fits(model: GgufLoader) -> None:
    """Beside all combinations."""
    rng = np.random.default_rng(5)
    tensors = matrices_of(model)[:6]
    kinds = [T.IQ4_NL, T.Q5_0, T.Q8_0, T.F16]
    for _ in range(20):
        choices = []
        for tensor in tensors:
            losses = np.sort(rng.lognormal(0, 2, len(kinds)))[::-1]
            options = [
                (k, size_as(tensor, k), float(x)) for k, x in zip(kinds, losses, strict=True)
            ]
            choices.append(Choice(tensor, options))
        every = [c.options for c in choices]
        smallest = sum(options[0][1] for options in every)
        largest = sum(options[-1][1] for options in every)
        room = int(rng.uniform(smallest, largest))
        found = allocate(choices, room)
        chosen = [{o[0]: o for o in c.options}[found[c.tensor.name]] for c in choices]
        assert sum(size for _, size, _ in chosen) <= room
        best = min(
            sum(loss for *_, loss in option)
            for option in product(*every)
            if sum(size for _, size, _ in option) <= room
        )
        assert sum(loss for *_, loss in chosen) <= 1.3 * best + 0.2 * max(o[0][2] for o in every)


def test_quantized_files_are_refused(tmp_path: Path) -> None:
    with (
        GgufLoader(write_model(tmp_path / "model.gguf", T.Q8_0)) as loader,
        pytest.raises(QuantError, match=r"already quantized \(blk.0.attn_q.weight is Q8_0\)"),
    ):
        matrices_of(loader)


def test_the_mix_of_a_file() -> None:
    sizes = {"a": 10, "b": 7, "c": 6}
    types = {"a": T.Q6_K, "b": T.IQ3_S, "c": T.IQ3_S}
    assert nearest_mix(types, lambda name: sizes[name]).base is T.IQ3_S
