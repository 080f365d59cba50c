"""What the table of operations does not have: extreme weights, more columns, long prompts."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gpu.gpu_runner import GpuRunner
from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu import find_device
from ingot.backends.gpu.linear import Cut, Workspace, wide_blocks, wide_tile
from ingot.backends.gpu.memory import DeviceMemory
from ingot.backends.gpu.weights import MatrixPlan
from ingot.gguf import GgmlType
from ingot.graph import ops as o
from ops.linear import FORMATS
from ops.small_graph import SmallGraph, expected_logits
from run_batches import GENERATION, PROMPT

ELSEWHERE = {o.Activation.TANH, o.Activation.SOFTPLUS}  # in encoders and in models with states
# Inputs and weights are rounded to 11 bits; an error of one logit, in units of their usual size.
HALVES = 2e-3


def relative_error(found: NDArray[np.float32], expected: NDArray[np.float64]) -> float:
    assert np.isfinite(found).all()
    return float(np.abs(found - expected).max() / np.sqrt((expected**2).mean()))


def run(
    small: SmallGraph, logits: o.Value, path: Path, tokens: int, phase: ExecutionPhase
) -> float:
    """Every token a sequence of its own, all in one batch."""
    graph, model = small.build(small.select(logits), path / "linear.gguf")
    with model:
        runner = GpuRunner(graph, model, positions=32, max_tokens=max(tokens, 32), sequences=tokens)
        found = runner.step({token: [token] for token in range(tokens)}, phase)
        rows = np.concatenate([found[token] for token in range(tokens)])
        return relative_error(rows, expected_logits(graph, model, range(tokens)))


@pytest.mark.parametrize(
    ("type", "scale"),
    [
        *(
            (type, s)
            for type in (GgmlType.Q4_K, GgmlType.Q8_0, GgmlType.MXFP4)
            for s in (1e-6, 1e3)
        ),
        (GgmlType.F16, 10.0),  # halves in the file itself lose tiny weights
    ],
)
def test_sizes_of_weights(type: GgmlType, scale: float, tmp_path: Path) -> None:
    """Scales far outside a half's range; inputs near its end."""
    small = SmallGraph(1)
    x = small.embed(small.random(2, 256, scale=1000))
    y = small.linear(x, small.random(32, 256, scale=scale), type=type)
    assert run(small, y, tmp_path, 2, GENERATION) < HALVES


@pytest.mark.parametrize("tokens", [9, 17])
def test_more_columns(tokens: int, tmp_path: Path) -> None:
    small = SmallGraph(2)
    x = small.embed(small.random(tokens, 128))
    y = small.linear(x, small.random(33, 128), type=GgmlType.Q8_0)
    assert run(small, y, tmp_path, tokens, GENERATION) < HALVES


@pytest.mark.parametrize("tokens", [1, 3])
def test_two_formats_of_one_input(tokens: int, tmp_path: Path) -> None:
    """They run in one kernel, columns shared out."""
    small = SmallGraph(5)
    x = small.embed(small.random(tokens, 512))
    first = small.linear(x, small.random(70, 512, scale=0.05), None, GgmlType.Q4_K)
    second = small.linear(x, small.random(70, 512, scale=0.05), small.random(70), GgmlType.Q6_K)
    third = small.linear(second, small.random(70, 70, scale=0.1))
    assert run(small, small.add(first, third), tmp_path, tokens, GENERATION) < 2 * HALVES


@pytest.mark.parametrize("type", FORMATS)
def test_wide_for_a_long_prompt(
    type: GgmlType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingot.backends.gpu.linear.SHORT_PROMPT", 1)
    columns = 256 if type.block_size > 32 else 96
    small = SmallGraph(3)
    x = small.embed(small.random(2, columns))
    y = small.linear(x, small.random(35, columns), type=type)
    assert run(small, y, tmp_path, 2, PROMPT) < HALVES


def test_wide_for_many_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares of the columns are added up as they are for few sequences, group by group."""
    monkeypatch.setattr("ingot.backends.gpu.linear.MAX_COLUMNS", 2)
    small = SmallGraph(6)
    x = small.embed(small.random(3, 512))
    y = small.linear(x, small.random(35, 512), type=GgmlType.Q8_0)
    assert run(small, y, tmp_path, 3, GENERATION) < HALVES


def test_every_wide_block_has_a_counter() -> None:
    """In the interpreter tiles are small, so blocks are many."""
    device, matrix = find_device(), MatrixPlan((o.Weight("w", (70, 512)),), GgmlType.Q8_0)
    work = Workspace.of(DeviceMemory(device.torch), [matrix], device)
    tile = wide_tile(matrix.sizes, Cut.of(matrix.sizes, device), 512, True, device)
    assert work.counters.numel() >= wide_blocks(matrix.sizes, tile, 512)


@pytest.mark.parametrize("phase", [GENERATION] if find_device().interpreted else ExecutionPhase)
@pytest.mark.parametrize("kind", [kind for kind in o.Activation if kind not in ELSEWHERE])
def test_gated_pair(kind: o.Activation, phase: ExecutionPhase, tmp_path: Path) -> None:
    """Norm, gate, up, activation, down and residual: two kernels and a norm."""
    small = SmallGraph(4)
    x = small.embed(small.random(3, 96))
    normed = small.value(96)
    weight = small.weight(small.random(96, offset=1, scale=0.1))
    bias = small.weight(small.random(96, scale=0.1))
    layer = o.NormKind.LAYER if kind is o.Activation.GELU else o.NormKind.RMS
    small.ops.append(
        o.Norm(source=x, out=normed, weight=weight, bias=bias, kind=layer, epsilon=1e-5)
    )
    gate = small.linear(normed, small.random(50, 96, scale=0.2), small.random(50), GgmlType.Q8_0)
    up = small.linear(normed, small.random(50, 96, scale=0.2), None, GgmlType.Q8_0)
    active = small.value(50)
    small.ops.append(o.Activate(gate=gate, up=up, out=active, kind=kind))
    y = small.linear(active, small.random(96, 50, scale=0.2))
    assert run(small, small.add(x, y), tmp_path, 3, phase) < 3 * HALVES
