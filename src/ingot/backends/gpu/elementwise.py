"""Ops that go number by number, if no op before them takes them."""

from typing import Any

import triton

from ingot.backends.gpu.kernels.codes import activation_code
from ingot.backends.gpu.kernels.elementwise import (
    Temper,
    Xielu,
    activate_kernel,
    add_kernel,
    pick_heads_kernel,
    temper_kernel,
    xielu_kernel,
)
from ingot.backends.gpu.lowering import Context, Launch, Step, launch_of
from ingot.backends.gpu.values import HALF_SCALE
from ingot.graph import ops as o

_BLOCK = 1024  # numbers that a program takes


def _launch(context: Context, kernel: Any, out: o.Value, **arguments: Any) -> Launch:
    """Of a kernel that writes the rows of a value."""
    selected, target = context.is_selected(out), context.values.tensor(out)

    def launch(step: Step) -> None:
        step.start(
            kernel,
            (triton.cdiv(out.width, _BLOCK), step.rows(selected)),
            out=target,
            width=out.width,
            BLOCK=_BLOCK,
            **arguments,
            **context.order,
        )

    return launch


@launch_of.register
def activate(op: o.Activate, context: Context) -> Launch:
    """An activation between two values that no linear layer makes together."""
    return _launch(
        context,
        activate_kernel,
        op.out,
        gate=context.values.tensor(op.gate),
        up=context.values.tensor(op.up) if op.up else None,
        half_scale=HALF_SCALE,
        ACTIVATION=activation_code(op.kind),
    )


@launch_of.register
def xielu(op: o.Xielu, context: Context) -> Launch:
    """The activation with numbers from the file."""
    return _launch(
        context,
        xielu_kernel,
        op.out,
        x=context.values.tensor(op.source),
        xielu=Xielu(op.rise, op.fall, op.slope),
        half_scale=HALF_SCALE,
    )


@launch_of.register
def add(op: o.Add, context: Context) -> Launch:
    """A sum of two values that are both read elsewhere, too."""
    left, right = (context.values.tensor(value) for value in (op.left, op.right))
    return _launch(context, add_kernel, op.out, left=left, right=right)


@launch_of.register
def pick_heads(op: o.PickHeads, context: Context) -> Launch:
    """Elements of every head."""
    return _launch(
        context,
        pick_heads_kernel,
        op.out,
        x=context.values.tensor(op.source),
        first=op.first,
        head_size=op.source.width // op.heads,
        size=op.out.width // op.heads,
        x_width=op.source.width,
    )


@launch_of.register
def temper(op: o.Temper, context: Context) -> Launch:
    """Queries that grow with their positions."""
    x, target, width = context.values.tensor(op.source), context.values.tensor(op.out), op.out.width
    numbers = Temper(op.scale, op.length, op.offset)

    def launch(step: Step) -> None:
        step.start(
            temper_kernel,
            (triton.cdiv(width, _BLOCK), step.inputs.tokens),
            x=x,
            out=target,
            positions=step.inputs.positions,
            temper=numbers,
            width=width,
            BLOCK=_BLOCK,
            **context.order,
        )

    return launch
