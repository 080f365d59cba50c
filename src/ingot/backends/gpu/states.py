"""Ops that keep a state of every sequence: convolutions, state spaces, the gated delta rule.

Decoded tokens go one after the other; a prompt runs in chunks where its kernel has them. States lie
as on the CPU, so a text that was saved on one device continues on the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.inputs import Inputs
from ingot.backends.gpu.kernels import states as kernels
from ingot.backends.gpu.kernels.convolution import (
    Convolution,
    ConvolutionForm,
    convolve_kernel,
    keep_rows_kernel,
)
from ingot.backends.gpu.kernels.delta_rule import (
    DeltaForm,
    DeltaRule,
    DeltaWork,
    delta_chunk_kernel,
    delta_prepare_kernel,
    delta_walk_kernel,
)
from ingot.backends.gpu.kernels.state_scan import (
    ScanForm,
    StateScan,
    scan_chunk_kernel,
    scan_elements_kernel,
    scan_walk_kernel,
)
from ingot.backends.gpu.kernels.states import Batch, StateView
from ingot.backends.gpu.lowering import Context, Launch, Step, launch_of
from ingot.backends.gpu.memory import DeviceMemory, aligned
from ingot.graph import ops as o
from ingot.graph.kv_layout import BLOCK_TOKENS

_CHANNELS = 256  # of a convolution that a program takes
_COLUMNS = 32  # of a head's matrix, or channels of a head
_STATE_FLOATS = 2048  # that a program holds while tokens go one by one
_CHUNK_FLOATS = 4096  # of the states of a chunk's tokens, in a parallel scan
_CHUNK_BYTES = 74 << 10  # of shared memory
_LEAST = 16  # rows and columns of a product
_LANES = int(kernels.LANES)


def delta_work(memory: DeviceMemory, ops: Sequence[o.DeltaRule], tokens: int) -> DeltaWork | None:
    """Memory that the delta rules of a model share, in steps of so many tokens."""
    if not ops:
        return None
    known = 4 * tokens * max(op.heads * op.key_size for op in ops)
    shares = 4 * tokens * max(op.heads for op in ops) * BLOCK_TOKENS
    pool = memory.pool(aligned(known) + aligned(shares))
    return DeltaWork(*(pool.take(size).view(torch.float32) for size in (known, shares)))


@dataclass(frozen=True, slots=True)
class StatePlace:
    """Where the states of an op lie."""

    group: int
    view: StateView  # without a table

    @classmethod
    def of(cls, number: int, context: Context) -> "StatePlace":
        """Of a state of the graph."""
        place, layout = context.layout.states[number], context.layout
        pool = context.memory.cache[place.group].view(torch.float32)
        floats = pool.element_size()
        return cls(
            place.group,
            StateView(
                table=pool[:0],
                table_stride=context.table_stride,
                pool=pool,
                block_stride=layout.groups[place.group].block_bytes // floats,
                start=place.offset // floats,
            ),
        )

    def of_step(self, inputs: Inputs) -> StateView:
        """With the blocks of a batch."""
        return self.view._replace(table=inputs.tables[self.group])


def _batch(inputs: Inputs) -> Batch:
    return Batch(inputs.positions, inputs.sequences, inputs.tiles)


def _mode(step: Step) -> tuple[int, int]:
    """How programs find their tokens, and among how many tiles or tokens."""
    if step.phase is ExecutionPhase.PROMPT:
        return int(kernels.PROMPT), step.inputs.tile_count
    return int(kernels.SINGLE if step.single else kernels.GUESSED), step.inputs.tokens


def products_of(device: Device) -> str:
    """Of products of floats: 24 bits, on NVIDIA's matrix units in three parts."""
    return "tf32x3" if device.assembly else "ieee"


def chunk_stages(device: Device) -> int:
    """Chunks whose loads are under way: a chunk of 128 columns takes up to 74 KiB."""
    return device.stages(2, _CHUNK_BYTES)


def _room(size: int) -> int:
    return int(max(_LEAST, triton.next_power_of_2(size)))


@launch_of.register
def causal_conv(op: o.CausalConv, context: Context) -> Launch:
    """A convolution; then the rows that later tokens need go to the state."""
    weight = context.vectors.get(op.weight)
    assert weight is not None, "it has one"
    channels, place = op.source.width, StatePlace.of(op.state, context)
    conv = Convolution(
        source=context.values.tensor(op.source),
        weight=weight,
        bias=context.vectors.get(op.bias),
        out=context.values.tensor(op.out),
        channels=channels,
    )
    block = min(_CHANNELS, triton.next_power_of_2(channels))
    form = ConvolutionForm(op.weight.shape[1], op.silu, block)

    def launch(step: Step) -> None:
        state, batch = place.of_step(step.inputs), _batch(step.inputs)
        blocks = triton.cdiv(channels, block)
        step.start(
            convolve_kernel,
            (blocks, step.inputs.tokens),
            conv=conv,
            state=state,
            batch=batch,
            FORM=form,
            SINGLE=step.single,
            num_warps=4,
            **context.order,
        )
        if step.single:
            return
        mode, numbers = _mode(step)
        step.start(
            keep_rows_kernel,
            (blocks, numbers),
            conv=conv,
            state=state,
            batch=batch,
            numbers=numbers,
            FORM=form,
            MODE=mode,
            num_warps=4,
        )

    return launch


@launch_of.register
def state_scan(op: o.StateScan, context: Context) -> Launch:
    """A state space; prompts in chunks, whether elements of a state decay alike or not."""
    decay, skip = context.vectors.get(op.decay), context.vectors.get(op.skip)
    assert decay is not None, "it has one"
    assert skip is not None, "it has one"
    tensor, place = context.values.tensor, StatePlace.of(op.state, context)
    scan = StateScan(
        x=tensor(op.x),
        step=tensor(op.step),
        b=tensor(op.b),
        c=tensor(op.c),
        decay=decay,
        skip=skip,
        out=tensor(op.out),
    )
    of_group, room = op.x.width // op.groups, _room(op.states)
    one_decay = op.decay.shape[1] == 1
    form = partial(
        ScanForm,
        heads=op.heads,
        head_size=op.x.width // op.heads,
        groups=op.groups,
        group_channels=of_group,
        states=op.states,
        state_room=room,
        vectors=-(-of_group // _LANES),
        one_decay=one_decay,
        precision=products_of(context.device),
        stages=chunk_stages(context.device),
    )
    walk = form(block=min(max(_LEAST, _STATE_FLOATS // room), _room(of_group)))
    if one_decay:
        chunk = form(block=min(_COLUMNS, _room(op.x.width // op.heads)))
        chunk_kernel = scan_chunk_kernel
        programs = op.heads * triton.cdiv(chunk.head_size, chunk.block)
    else:
        chunk = form(block=max(1, _CHUNK_FLOATS // (BLOCK_TOKENS * room)))
        chunk_kernel = scan_elements_kernel
        programs = op.groups * triton.cdiv(of_group, chunk.block)

    def launch(step: Step) -> None:
        state, batch = place.of_step(step.inputs), _batch(step.inputs)
        mode, numbers = _mode(step)
        if step.phase is ExecutionPhase.PROMPT:
            step.start(
                chunk_kernel,
                (programs, numbers),
                scan=scan,
                state=state,
                batch=batch,
                numbers=numbers,
                FORM=chunk,
                num_warps=4,
            )
            return
        step.start(
            scan_walk_kernel,
            (op.groups * triton.cdiv(of_group, walk.block), numbers),
            scan=scan,
            state=state,
            batch=batch,
            numbers=numbers,
            FORM=walk,
            MODE=mode,
            num_warps=4,
            enable_fp_fusion=False,  # one token and several round alike
            **context.order,
        )

    return launch


@launch_of.register
def delta_rule(op: o.DeltaRule, context: Context) -> Launch:
    """The gated delta rule; prompts in chunks."""
    decay, bias = context.vectors.get(op.decay), context.vectors.get(op.bias)
    assert decay is not None, "it has one"
    assert bias is not None, "it has one"
    assert context.memory.delta is not None, "the plan has seen delta rules"
    tensor, place, work = (
        context.values.tensor,
        StatePlace.of(op.state, context),
        context.memory.delta,
    )
    delta = DeltaRule(
        query=tensor(op.query),
        key=tensor(op.key),
        value=tensor(op.value),
        step=tensor(op.step),
        rate=tensor(op.rate),
        decay=decay,
        bias=bias,
        out=tensor(op.out),
        epsilon=op.epsilon,
        scale=op.key_size**-0.5,
    )
    vectors = -(-op.value_size // _LANES)
    form = DeltaForm(
        heads=op.heads,
        key_heads=op.key_heads,
        tiled=op.tiled,
        key_size=op.key_size,
        key_room=_room(op.key_size),
        value_size=op.value_size,
        vectors=vectors,
        columns=min(_COLUMNS, _room(op.value_size)),
        precision=products_of(context.device),
        stages=chunk_stages(context.device),
    )
    programs = op.heads * triton.cdiv(vectors * _LANES, form.columns)

    def launch(step: Step) -> None:
        state, batch = place.of_step(step.inputs), _batch(step.inputs)
        mode, numbers = _mode(step)
        if step.phase is not ExecutionPhase.PROMPT:
            step.start(
                delta_walk_kernel,
                (programs, numbers),
                delta=delta,
                state=state,
                batch=batch,
                numbers=numbers,
                FORM=form,
                MODE=mode,
                num_warps=4,
                enable_fp_fusion=False,  # one token and several round alike
                **context.order,
            )
            return
        tokens = step.inputs.tokens
        step.start(
            delta_prepare_kernel,
            (op.heads, triton.cdiv(tokens, BLOCK_TOKENS)),
            delta=delta,
            work=work,
            batch=batch,
            tokens=tokens,
            FORM=form,
            num_warps=4,
        )
        step.start(
            delta_chunk_kernel,
            (programs, numbers),
            delta=delta,
            work=work,
            state=state,
            batch=batch,
            numbers=numbers,
            FORM=form,
            num_warps=4,
        )

    return launch
