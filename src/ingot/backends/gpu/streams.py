"""Ops of layers that work on one of several streams, have inputs of their own, or share keys."""

from typing import Any

import triton

from ingot.backends.gpu.kernels.heads import HeadForm, HeadNorm
from ingot.backends.gpu.kernels.row_values import keep_peaks_kernel, rope_kernel, scale_kernel
from ingot.backends.gpu.kernels.streams import (
    add_to_streams_kernel,
    correct_streams_kernel,
    mean_streams_kernel,
    mix_streams_kernel,
    stack_streams_kernel,
)
from ingot.backends.gpu.lowering import Context, Launch, Step, launch_of
from ingot.graph import ops as o

_BLOCK = 1024  # numbers that a program takes
_WARPS = 8  # of a whole row


def _columns(context: Context, kernel: Any, out: o.Value, width: int, **arguments: Any) -> Launch:
    """Of a kernel whose programs take some columns of one row; `width`: of one stream."""
    selected, target = context.is_selected(out), context.values.tensor(out)

    def launch(step: Step) -> None:
        step.start(
            kernel,
            (triton.cdiv(width, _BLOCK), step.rows(selected)),
            out=target,
            width=width,
            BLOCK=_BLOCK,
            **arguments,
            **context.order,
        )

    return launch


def _rows(context: Context, kernel: Any, out: o.Value, width: int, **arguments: Any) -> Launch:
    """Of a kernel whose programs take a whole row."""
    selected, target = context.is_selected(out), context.values.tensor(out)

    def launch(step: Step) -> None:
        step.start(
            kernel,
            (step.rows(selected),),
            out=target,
            width=width,
            BLOCK=triton.next_power_of_2(width),
            num_warps=_WARPS,
            **arguments,
            **context.order,
        )

    return launch


@launch_of.register
def stack_streams(op: o.StackStreams, context: Context) -> Launch:
    """The first stream, and others as large as it."""
    width = op.first.width
    return _rows(
        context,
        stack_streams_kernel,
        op.out,
        width,
        first=context.values.tensor(op.first),
        others=context.values.tensor(op.others),
        epsilon=op.epsilon,
        OTHERS=op.others.width // width,
    )


@launch_of.register
def mix_streams(op: o.MixStreams, context: Context) -> Launch:
    """Each stream, and a mix of all."""
    return _columns(
        context,
        mix_streams_kernel,
        op.out,
        op.out.width // op.streams,
        x=context.values.tensor(op.source),
        gains=context.values.tensor(op.gains),
        STREAMS=op.streams,
    )


@launch_of.register
def correct_streams(op: o.CorrectStreams, context: Context) -> Launch:
    """What a layer changed, in all streams."""
    return _columns(
        context,
        correct_streams_kernel,
        op.out,
        op.row.width,
        x=context.values.tensor(op.source),
        row=context.values.tensor(op.row),
        gains=context.values.tensor(op.gains),
        active=op.active,
        STREAMS=op.gains.width,
    )


@launch_of.register
def add_to_streams(op: o.AddToStreams, context: Context) -> Launch:
    """A row for all streams but the first."""
    return _columns(
        context,
        add_to_streams_kernel,
        op.out,
        op.row.width,
        x=context.values.tensor(op.source),
        row=context.values.tensor(op.row),
        STREAMS=op.out.width // op.row.width,
    )


@launch_of.register
def mean_streams(op: o.MeanStreams, context: Context) -> Launch:
    """The mean of all streams."""
    return _columns(
        context,
        mean_streams_kernel,
        op.out,
        op.out.width,
        x=context.values.tensor(op.source),
        STREAMS=op.source.width // op.out.width,
    )


@launch_of.register
def scale(op: o.Scale, context: Context) -> Launch:
    """Rows times a number, or a number for each element."""
    return _columns(
        context,
        scale_kernel,
        op.out,
        op.out.width,
        x=context.values.tensor(op.source),
        weight=context.vectors.get(op.weight),
        factor=op.factor,
        ONE=op.weight is not None and op.weight.shape == (1,),
    )


@launch_of.register
def keep_peaks(op: o.KeepPeaks, context: Context) -> Launch:
    """What rises above the rest of a row."""
    return _rows(
        context,
        keep_peaks_kernel,
        op.out,
        op.out.width,
        x=context.values.tensor(op.source),
        deviations=op.deviations,
    )


@launch_of.register
def rope(op: o.Rope, context: Context) -> Launch:
    """Queries of keys that another layer has stored."""
    x, out = context.values.tensor(op.source), context.values.tensor(op.out)
    table, size = context.vectors.rope(op.rotary), op.head_size
    head = HeadForm(
        query_norm=0,
        key_norm=0,
        pairs=len(op.frequencies),
        interleaved=op.layout is o.RopeLayout.INTERLEAVED,
    )

    def launch(step: Step) -> None:
        step.start(
            rope_kernel,
            (op.out.width // size, step.inputs.tokens),
            x=x,
            out=out,
            positions=step.inputs.positions,
            norm=HeadNorm(),
            rope=table,
            SIZE=size,
            PADDED=triton.next_power_of_2(size),
            HEAD=head,
            num_warps=1,
            **context.order,
        )

    return launch
