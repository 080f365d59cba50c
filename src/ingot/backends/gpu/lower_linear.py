"""Lower linear maps: which matrices, what becomes of their sums, what makes their input."""

from collections.abc import Sequence

import torch

from ingot.backends.gpu.kernels.codes import activation_code
from ingot.backends.gpu.linear import MAX_PARTS, Epilogue, LinearMap, Rows
from ingot.backends.gpu.lower_rows import input_rows, missing_norm
from ingot.backends.gpu.lower_state import State, launch_of, missing
from ingot.backends.gpu.matrices import MatrixPlan, plan_linear
from ingot.backends.gpu.step import Launch, Step
from ingot.backends.gpu.values import HALF_SCALE
from ingot.graph import ops as o

_BIAS_ROOM = 128  # a kernel's last block may read behind the rows


@missing.register
def _(op: o.FusedLinear) -> str | None:
    if len(op.parts) > MAX_PARTS:
        return f"linear maps of more than {MAX_PARTS} matrices"
    if op.activation and len({part.scale for part in op.parts}) > 1:
        return "gates and ups of different scales"
    return missing_norm(op.norm, op.source)


@launch_of.register
def fused_linear(op: o.FusedLinear, state: State) -> Launch:
    """One or several matrices of the same input, with all that follows."""
    groups = plan_linear(op, state.model)
    most = max(plan.sizes.chunks for plan, _ in groups)
    before, x, stride, scale = input_rows(state, op.source, op.norm, most)
    selected = state.selected
    gated = op.activation is not None and len(op.parts) == 2
    half = op.parts[0].out.name in state.values.halves
    maps = []
    logits = op.parts[0].out == state.graph.logits
    for plan, parts in groups:
        stored = parts[:1] if gated else parts
        residual = parts[0].residual
        epilogue = Epilogue(
            firsts=(0,) if gated else plan.starts,
            widths=tuple(part.out.width for part in stored),
            bases=(0,) if logits else tuple(state.values.offset(part.out) for part in stored),
            bias=_bias(state, plan, parts),
            residual=state.values.tensor(residual) if residual else None,
            activation=activation_code(op.activation),
            gated=gated,
            half=half,
        )
        maps.append(LinearMap(state.store.get(plan), parts[0].scale / scale, epilogue))
    arena = state.values.arena.view(torch.float16) if half else state.values.arena

    def launch(step: Step) -> None:
        for run in before:
            run(step)
        out = step.logits if logits else arena
        inputs = Rows(x, stride, step.rows(selected))
        state.linear.run(maps, inputs, step.phase, out, HALF_SCALE)

    return launch


def _bias(state: State, plan: MatrixPlan, parts: Sequence[o.LinearPart]) -> torch.Tensor | None:
    """The biases of all parts, times their scales, row by row as the matrix has them."""
    vectors = [state.vectors.get(part.bias) for part in parts]
    if all(vector is None for vector in vectors):
        return None
    bias = torch.zeros(plan.sizes.rows + _BIAS_ROOM, device=state.x.device)
    for index, (part, vector) in enumerate(zip(parts, vectors, strict=True)):
        if vector is None:
            continue
        if plan.interleaved:
            bias[index : len(parts) * len(vector) : len(parts)] = vector * part.scale
        else:
            start = plan.starts[index]
            bias[start : start + len(vector)] = vector * part.scale
    return bias
