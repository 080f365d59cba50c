"""Ops that go row by row: embedding, norms, selection, soft cap, gates of rows."""

from dataclasses import dataclass
from typing import Any

import torch
import triton

from ingot.backends.gpu.kernels.adapters import Target
from ingot.backends.gpu.kernels.norm_runs import norm_runs_kernel
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
_SMALL_RUN = 256  # values that one warp norms


@launch_of.register
def embed(op: o.Embed, context: Context) -> Launch:
    """Rows of the embedding, for ids or the tokens that the step before sampled."""
    planes = context.matrices.get(plan_embedding(op, context.model))
    weights, sampled = planes.weights, context.memory.sampler.tokens
    embedding = Embedding(
        factor=planes.factor * op.scale,
        learned=context.vectors.get(op.positions),
        kinds=context.vectors.get(op.types),
        out=context.values.tensor(op.out),
        width=op.out.width,
    )
    width = op.out.width
    target = Target(embedding.out, (op.scale,), (width,), (0,), (width,), 1)

    def launch(step: Step) -> None:
        step.start(
            embed_kernel,
            (weights.chunks, step.inputs.tokens),
            ids=step.inputs.ids,
            sampled=sampled,
            positions=step.inputs.positions,
            types=step.inputs.types,
            weights=weights,
            embedding=embedding,
            FORM=planes.form,
            num_warps=1,
            **context.order,
        )
        if step.adapters:
            rows = step.adapter_rows(selected=False)
            context.adapters.add_embedding(op, rows, step.inputs.ids, sampled, target)

    return launch


def norm_rows(
    context: Context,
    source: o.Value,
    norm: o.Normalization | None,
    target: torch.Tensor | None,
    stride: int,
    scale: float = 1.0,
    residual: o.Value | None = None,
) -> Launch:
    """Rows of `stride`, floats or halves as the target is; without a norm only scaled.

    Without a target they are what comes out of the graph.
    """
    x, width, selected = context.values.tensor(source), source.width, context.is_selected(source)
    added = context.values.tensor(residual) if residual else None
    bundle, kind = Norm(None, None, 0.0), 0
    if norm:
        vectors = context.vectors
        bundle = Norm(vectors.get(norm.weight), vectors.get(norm.bias), norm.epsilon)
        kind = 2 if norm.kind is o.NormKind.LAYER else 1
    if norm and norm.run != width:
        own = norm.weight is not None and len(norm.weight.shape) > 1
        return _norm_runs(
            context,
            selected,
            norm.run,
            rows=width // norm.run + (stride > width),
            x=x,
            norm=bundle,
            residual=added,
            out=target,
            width=width,
            weight_stride=norm.run if own else 0,
            stride=stride,
            scale=scale,
            NORM=kind,
        )

    def launch(step: Step) -> None:
        step.start(
            norm_kernel,
            (step.rows(selected),),
            x=x,
            norm=bundle,
            residual=added,
            out=step.logits if target is None else target,
            width=width,
            stride=stride,
            scale=scale,
            BLOCK=triton.next_power_of_2(max(width, stride)),
            NORM=kind,
            num_warps=8,
            **context.order,
        )

    return launch


def _norm_runs(
    context: Context, selected: bool, run: int, *, rows: int, **arguments: Any
) -> Launch:
    """Of parts of a row; `rows`: programs of a row."""
    block = triton.next_power_of_2(max(run, arguments["stride"] - arguments["width"]))

    def launch(step: Step) -> None:
        step.start(
            norm_runs_kernel,
            (rows, step.rows(selected)),
            run=run,
            BLOCK=block,
            num_warps=4 if block > _SMALL_RUN else 1,
            **arguments,
            **context.order,
        )

    return launch


@launch_of.register
def fused_norm(op: o.FusedNorm, context: Context) -> Launch:
    """A norm that no linear layer has taken over."""
    last = op.out == context.plan.graph.logits
    target = None if last else context.values.tensor(op.out)
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
            SIGMOID=op.sigmoid,
            BLOCK=_BLOCK,
            **context.order,
        )

    return launch
