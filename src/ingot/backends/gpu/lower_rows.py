"""Lower what goes row by row: embedding, norms, selection, soft cap, gates of rows."""

import torch
import triton

from ingot.backends.gpu.kernels.mix import gate_rows_kernel
from ingot.backends.gpu.kernels.norm import norm_kernel
from ingot.backends.gpu.kernels.rows import embed_kernel, select_kernel, softcap_kernel
from ingot.backends.gpu.lower_state import State, launch_of, missing
from ingot.backends.gpu.matrices import plan_embedding
from ingot.backends.gpu.planes import CHUNK
from ingot.backends.gpu.step import Launch, Step
from ingot.backends.gpu.values import HALF_SCALE
from ingot.graph import ops as o


@missing.register
def _(op: o.Embed) -> str | None:
    return "embeddings of types" if op.types else None


@launch_of.register
def embed(op: o.Embed, state: State) -> Launch:
    """Rows of the embedding, for ids or the tokens that the step before chose."""
    planes = state.store.get(plan_embedding(op, state.model))
    out, width = state.values.tensor(op.out), op.out.width
    positions = state.vectors.get(op.positions)
    order = state.order

    def launch(step: Step) -> None:
        embed_kernel[(planes.sizes.chunks, step.inputs.tokens)](
            step.inputs.ids,
            state.chosen,
            step.inputs.positions,
            planes.codes,
            planes.extras,
            planes.scales,
            planes.sizes.chunks,
            planes.factor * op.scale,
            positions,
            out,
            width,
            **planes.form.constants(),
            POSITIONS=positions is not None,
            num_warps=1,
            **order,
        )

    return launch


def norm_rows(
    state: State,
    source: o.Value,
    norm: o.Normalization | None,
    target: torch.Tensor,
    stride: int,
    scale: float = 1.0,
    residual: o.Value | None = None,
) -> Launch:
    """Rows of `stride`, floats or halves as the target is; without a norm only scaled."""
    x, width, selected = state.values.tensor(source), source.width, state.selected
    order = state.order
    weight = state.vectors.get(norm.weight) if norm else None
    bias = state.vectors.get(norm.bias) if norm else None
    added = state.values.tensor(residual) if residual else None
    kind = 0 if norm is None else 2 if norm.kind is o.NormKind.LAYER else 1

    def launch(step: Step) -> None:
        norm_kernel[(step.rows(selected),)](
            x,
            weight,
            bias,
            added,
            target,
            width,
            stride,
            norm.epsilon if norm else 0.0,
            scale,
            BLOCK=triton.next_power_of_2(max(width, stride)),
            NORM=kind,
            BIAS=bias is not None,
            RESIDUAL=added is not None,
            HALF=target.dtype == torch.float16,
            num_warps=8,
            **order,
        )

    return launch


@missing.register
def _(op: o.FusedNorm) -> str | None:
    return missing_norm(op.norm, op.source)


def missing_norm(norm: o.Normalization | None, source: o.Value) -> str | None:
    """Norms that no kernel computes."""
    if norm is None:
        return None
    if norm.weight is None:
        return "norms without weights"
    return "norms of parts of a row" if norm.run != source.width else None


@launch_of.register
def fused_norm(op: o.FusedNorm, state: State) -> Launch:
    """A norm that stands alone."""
    target = state.values.tensor(op.out)
    return norm_rows(state, op.source, op.norm, target, op.out.width, residual=op.residual)


def input_rows(
    state: State, source: o.Value, norm: o.Normalization | None, chunks: int
) -> tuple[list[Launch], torch.Tensor, int, float]:
    """The input of a linear map as halves: what makes it, its memory, stride and scale."""
    if norm and norm is state.ready:
        state.ready = None
        return [], state.x, chunks * CHUNK, 1.0
    if norm is None and source.name in state.values.halves:
        return [], state.values.tensor(source), source.width, state.values.scale(source)
    stride, scale = chunks * CHUNK, 1.0 if norm else HALF_SCALE
    return [norm_rows(state, source, norm, state.x, stride, scale)], state.x, stride, scale


@launch_of.register
def select(op: o.Select, state: State) -> Launch:
    """The rows of the tokens whose logits are wanted."""
    x, width = state.values.tensor(op.source), op.source.width
    target = None if op.out == state.graph.logits else state.values.tensor(op.out)
    order = state.order

    def launch(step: Step) -> None:
        select_kernel[(triton.cdiv(width, 1024), step.inputs.wanted_count)](
            x,
            step.inputs.wanted,
            step.logits if target is None else target,
            width,
            BLOCK=1024,
            **order,
        )

    return launch


def softcap(state: State) -> Launch:
    """In place, where the logits go."""
    width, cap, order = state.graph.logits.width, state.cap, state.order

    def launch(step: Step) -> None:
        logits, grid = step.logits, (triton.cdiv(width, 1024), step.inputs.wanted_count)
        softcap_kernel[grid](logits, logits, width, cap, BLOCK=1024, **order)

    return launch


@launch_of.register
def gate_rows(op: o.FusedGateRows, state: State) -> Launch:
    """Rows times a gate of one number each."""
    x, gate = state.values.tensor(op.source), state.values.tensor(op.gate)
    residual = state.values.tensor(op.residual) if op.residual else None
    out, width, selected = state.values.tensor(op.out), op.out.width, state.selected
    order = state.order

    def launch(step: Step) -> None:
        gate_rows_kernel[(triton.cdiv(width, 1024), step.rows(selected))](
            x,
            gate,
            residual,
            out,
            width,
            RESIDUAL=residual is not None,
            BLOCK=1024,
            **order,
        )

    return launch
