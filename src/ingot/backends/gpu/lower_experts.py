"""Lower experts: their choice, their linear maps, and the mix of what they found."""

from collections.abc import Sequence

import torch

from ingot.backends.gpu.kernels.codes import activation_code
from ingot.backends.gpu.lower_rows import input_rows
from ingot.backends.gpu.lower_state import State, launch_of
from ingot.backends.gpu.matrices import MatrixPlan, plan_experts, plan_linear
from ingot.backends.gpu.planes import CHUNK
from ingot.backends.gpu.step import Launch, Step
from ingot.backends.gpu.values import HALF_SCALE
from ingot.graph import ops as o


@launch_of.register
def route(op: o.Route, state: State) -> Launch:
    """The choice of experts; their tokens are brought together."""
    assert state.experts, "there are experts"
    experts, selected = state.experts, state.selected
    scores, out = state.values.tensor(op.scores), state.values.tensor(op.out)
    bias = state.vectors.get(op.selection_bias)
    return lambda step: experts.route(op, scores, bias, out, step, step.rows(selected), selected)


@launch_of.register
def expert_gate(op: o.ExpertGate, state: State) -> Launch:
    """Gate and up of the experts that were chosen."""
    used = op.choice.width // 2
    gated = len(op.parts) == 2
    return _expert_linear(
        state, op, op.parts, state.values.tensor(op.out), op.out.width // used, gated
    )


@launch_of.register
def mix(op: o.ExpertMix, state: State) -> Launch:
    """With the norm that follows, if it is that of a linear map."""
    assert state.experts, "there are experts"
    experts, selected, width = state.experts, state.selected, op.out.width
    part = o.ExpertPart(weight=op.weight, bias=op.bias)
    linear = _expert_linear(state, op, [part], experts.work.parts, width, gated=False)
    choice, out = state.values.tensor(op.choice), state.values.tensor(op.out)
    residual = state.values.tensor(op.residual) if op.residual else None
    count, used = op.weight.shape[0], op.choice.width // 2
    norm = weight = None
    stride = 0
    after = state.following
    if isinstance(after, o.FusedLinear) and after.source == op.out and _is_rms(after.norm):
        state.ready = norm = after.norm
        weight = state.vectors.get(norm.weight) if norm else None
        plans = plan_linear(after, state.model)
        stride = max(plan.sizes.chunks for plan, _ in plans) * CHUNK

    def launch(step: Step) -> None:
        linear(step)
        experts.mix(
            choice,
            count,
            used,
            residual,
            out,
            width,
            step.rows(selected),
            weight,
            norm.epsilon if norm else 0.0,
            state.x,
            stride,
        )

    return launch


def _expert_linear(
    state: State,
    op: o.ExpertGate | o.ExpertMix,
    parts: Sequence[o.ExpertPart],
    out: torch.Tensor,
    width: int,
    gated: bool,
) -> Launch:
    assert state.experts, "there are experts"
    experts, selected = state.experts, state.selected
    plan = plan_experts(op, state.model)
    planes, choice = state.store.get(plan), state.values.tensor(op.choice)
    before, x, stride, scale = input_rows(state, op.source, None, planes.sizes.chunks)
    used = op.choice.width // 2
    own = op.source.width == used * plan.columns and used > 1
    bias = _expert_bias(state, plan, parts)
    activation = activation_code(op.activation if isinstance(op, o.ExpertGate) else None)

    def launch(step: Step) -> None:
        for run in before:
            run(step)
        experts.run(
            planes,
            plan.expert_rows,
            plan.experts,
            used,
            x,
            plan.columns if own else stride,
            scale,
            own,
            choice,
            bias,
            out,
            width,
            HALF_SCALE,
            activation,
            gated,
            step,
            step.rows(selected),
        )

    return launch


def _expert_bias(
    state: State, plan: MatrixPlan, parts: Sequence[o.ExpertPart]
) -> torch.Tensor | None:
    """Row by row as the matrix has them."""
    if all(part.bias is None for part in parts):
        return None
    bias = torch.zeros(plan.experts, plan.expert_rows, device=state.x.device)
    for index, part in enumerate(parts):
        vector = state.vectors.get(part.bias)
        if vector is not None:
            rows = len(parts) * plan.rows[index]
            bias[:, index : rows : len(parts)] = vector.view(plan.experts, -1)
    return bias


def _is_rms(norm: o.Normalization | None) -> bool:
    return norm is not None and norm.kind is o.NormKind.RMS and norm.bias is None
