"""Ops that go row by row: embedding, norms, selection, soft cap, gates of rows."""

from dataclasses import dataclass

import torch
import triton

from ingot.backends.gpu.kernels.rows import (
    Embedding,
    Norm,
    embed_kernel,
    gate_rows_kernel,
    norm_kernel,
    select_kernel,
    softcap_kernel,
)
from ingot.backends.gpu.lowering import Context, Launch, Step, launch_of, missing
from ingot.backends.gpu.planes import CHUNK
from ingot.backends.gpu.values import HALF_SCALE
from ingot.backends.gpu.weights import plan_embedding
from ingot.graph import ops as o

_BLOCK = 1024  # values of a row that a program takes


@missing.register
def _(op: o.Embed) -> str | None:
    return "embeddings of types" if op.types else None


@launch_of.register
def embed(op: o.Embed, context: Context) -> Launch:
    """Rows of the embedding, for ids or the tokens that the step before sampled."""
    planes = context.matrices.get(plan_embedding(op, context.model))
    weights, sampled = planes.weights, context.memory.sampler.tokens
    embedding = Embedding(
        factor=planes.factor * op.scale,
        learned=context.vectors.get(op.positions),
        out=context.values.tensor(op.out),
        width=op.out.width,
    )

    def launch(step: Step) -> None:
        step.start(
            embed_kernel,
            (weights.chunks, step.inputs.tokens),
            ids=step.inputs.ids,
            sampled=sampled,
            positions=step.inputs.positions,
            weights=weights,
            embedding=embedding,
            FORM=planes.form,
            num_warps=1,
            **context.order,
        )

    return launch


def norm_rows(
    context: Context,
    source: o.Value,
    norm: o.Normalization | None,
    target: torch.Tensor,
    stride: int,
    scale: float = 1.0,
    residual: o.Value | None = None,
) -> Launch:
    """Rows of `stride`, floats or halves as the target is; without a norm only scaled."""
    x, width, selected = context.values.tensor(source), source.width, context.is_selected(source)
    added = context.values.tensor(residual) if residual else None
    bundle, kind = Norm(None, None, 0.0), 0
    if norm:
        vectors = context.vectors
        bundle = Norm(vectors.get(norm.weight), vectors.get(norm.bias), norm.epsilon)
        kind = 2 if norm.kind is o.NormKind.LAYER else 1

    def launch(step: Step) -> None:
        step.start(
            norm_kernel,
            (step.rows(selected),),
            x=x,
            norm=bundle,
            residual=added,
            out=target,
            width=width,
            stride=stride,
            scale=scale,
            BLOCK=triton.next_power_of_2(max(width, stride)),
            NORM=kind,
            num_warps=8,
            **context.order,
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
def fused_norm(op: o.FusedNorm, context: Context) -> Launch:
    """A norm that no linear layer has taken over."""
    target = context.values.tensor(op.out)
    return norm_rows(context, op.source, op.norm, target, op.out.width, residual=op.residual)


@dataclass(frozen=True, slots=True)
class LinearInput:
    """The input of a linear layer as halves: what makes it, if anything, and where it lies."""

    before: Launch | None
    x: torch.Tensor
    stride: int
    scale: float  # that it is multiplied by

    @classmethod
    def of(
        cls, context: Context, source: o.Value, norm: o.Normalization | None, chunks: int
    ) -> "LinearInput":
        """For rows of so many chunks."""
        x, stride = context.memory.x, chunks * CHUNK
        if norm is None and source.name in context.plan.halves:
            tensor = context.values.tensor(source)
            return cls(None, tensor, source.width, context.values.scale(source))
        scale = 1.0 if norm else HALF_SCALE
        return cls(norm_rows(context, source, norm, x, stride, scale), x, stride, scale)


@launch_of.register
def select(op: o.Select, context: Context) -> Launch:
    """The rows of the tokens whose logits are wanted."""
    x, width = context.values.tensor(op.source), op.source.width
    target = None if op.out == context.plan.graph.logits else context.values.tensor(op.out)

    def launch(step: Step) -> None:
        step.start(
            select_kernel,
            (triton.cdiv(width, _BLOCK), step.inputs.wanted_count),
            x=x,
            wanted=step.inputs.wanted,
            out=step.logits if target is None else target,
            width=width,
            BLOCK=_BLOCK,
            **context.order,
        )

    return launch


@missing.register
def _(op: o.SoftCap) -> str | None:
    return type(op).__name__  # but for that of the logits, which the plan sets apart


@launch_of.register
def softcap(op: o.SoftCap, context: Context) -> Launch:
    """The soft cap of the logits, in place."""
    width = op.out.width

    def launch(step: Step) -> None:
        logits = step.logits
        step.start(
            softcap_kernel,
            (triton.cdiv(width, _BLOCK), step.inputs.wanted_count),
            x=logits,
            out=logits,
            width=width,
            cap=op.cap,
            BLOCK=_BLOCK,
            **context.order,
        )

    return launch


@missing.register
def _(op: o.FusedGateRows) -> str | None:
    return None if op.sigmoid else "gates without a sigmoid"


@launch_of.register
def gate_rows(op: o.FusedGateRows, context: Context) -> Launch:
    """Rows times a gate of one number each."""
    x, gate = context.values.tensor(op.source), context.values.tensor(op.gate)
    residual = context.values.tensor(op.residual) if op.residual else None
    out, width = context.values.tensor(op.out), op.out.width
    selected = context.is_selected(op.out)

    def launch(step: Step) -> None:
        step.start(
            gate_rows_kernel,
            (triton.cdiv(width, _BLOCK), step.rows(selected)),
            x=x,
            gate=gate,
            residual=residual,
            out=out,
            width=width,
            BLOCK=_BLOCK,
            **context.order,
        )

    return launch
