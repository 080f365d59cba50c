"""Experts of a layer: pick them, bring their tokens together, run and mix them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.kernels.codes import activation_code, code
from ingot.backends.gpu.kernels.epilogue import Epilogue
from ingot.backends.gpu.kernels.experts import (
    Groups,
    NextNorm,
    Router,
    expert_kernel,
    group_kernel,
    mix_kernel,
    route_kernel,
)
from ingot.backends.gpu.kernels.products import ProductTile, Rows
from ingot.backends.gpu.linear import stages_of, unroll_of
from ingot.backends.gpu.lowering import Context, Launch, Step, launch_of
from ingot.backends.gpu.memory import DeviceMemory, aligned
from ingot.backends.gpu.planes import CHUNK, PlaneSizes
from ingot.backends.gpu.rows import LinearInput
from ingot.backends.gpu.values import HALF_SCALE
from ingot.backends.gpu.weights import MatrixPlan, plan_experts, plan_linear
from ingot.graph import ops as o

FEW_COLUMNS = 16
_WHOLE_COLUMNS = 64  # pairs from which on a chunk of columns is one product
_MOST_COLUMNS = 128
_PAIRS = 256  # that a program puts in their places
_ROWS = 32  # of a warp
_ONE_ROWS, _FEW_ROWS, _MANY_ROWS = 32, 64, 128  # of a program, for 1, a few or many pairs


@dataclass(frozen=True, slots=True)
class ExpertWork:
    """Memory that the layers share, one after the other."""

    groups: Groups
    parts: torch.Tensor  # float32 [pairs, width]: outputs of experts, not mixed yet

    @classmethod
    def of(cls, memory: DeviceMemory, mixes: Sequence[o.ExpertMix], tokens: int) -> "ExpertWork":
        """For these ops in steps of so many tokens."""
        experts = max(op.weight.shape[0] for op in mixes)
        pairs = tokens * max(op.choice.width // 2 for op in mixes)
        widest = max(op.out.width for op in mixes)
        sizes = (4 * experts, 4 * pairs, 4 * pairs, 12 * (pairs + experts), 4, 4 * pairs * widest)
        pool = memory.pool(sum(aligned(size) for size in sizes))
        groups = Groups(*(pool.take(size).view(torch.int32) for size in sizes[:-1]))
        return cls(groups, pool.take(sizes[-1]).view(torch.float32))


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the pairs of a step are cut into tiles."""

    single: bool  # of one token: each is a tile, and nothing needs sorting
    columns: int  # pairs of a tile
    most: int  # tiles
    whole: bool = False  # as linear layers of many tokens multiply

    @classmethod
    def of(
        cls, tokens: int, used: int, experts: int, phase: ExecutionPhase, device: Device
    ) -> "Tiling":
        """By an expert's share if all experts get the same.

        Decode reads weights once: tiles are a little larger than that. In a prompt, they are at
        least two thirds full, because the matrix units take as long for what is empty.
        """
        fewest = 8 if device.assembly else 16
        pairs = tokens * used
        if phase is ExecutionPhase.GENERATION:
            if tokens == 1:
                return cls(True, fewest, used)
            usual = int(triton.next_power_of_2(-(-pairs // experts) + 1))
            columns = min(max(fewest, usual), _WHOLE_COLUMNS)
        else:
            usual = 1 << (3 * pairs // (2 * experts)).bit_length() >> 1
            columns = 16 if device.interpreted else min(max(16, usual), _MOST_COLUMNS)
        # Prompts in the interpreter try it, too. For gfx942 narrow tiles do not compile so.
        whole = columns >= _WHOLE_COLUMNS or (device.interpreted and phase is ExecutionPhase.PROMPT)
        return cls(False, columns, pairs // columns + min(experts, pairs), whole)

    def rows(self, phase: ExecutionPhase) -> tuple[int, int]:
        """Rows of an expert that a program takes, and its warps."""
        if self.whole or phase is ExecutionPhase.PROMPT:
            return _MANY_ROWS, 8
        few = _FEW_ROWS if self.columns <= FEW_COLUMNS else _MANY_ROWS
        rows = _ONE_ROWS if self.single else few
        return rows, max(1, rows // _ROWS)


def _work(context: Context) -> ExpertWork:
    assert context.memory.experts, "the plan has seen experts"
    return context.memory.experts


@launch_of.register
def route(op: o.Route, context: Context) -> Launch:
    """Pick the experts of every token; then bring the pairs of every expert together."""
    experts, groups, device = op.scores.width, _work(context).groups, context.device
    scores, choice = context.values.tensor(op.scores), context.values.tensor(op.out)
    bias, selected = context.vectors.get(op.selection_bias), context.is_selected(op.out)
    expert_scales = context.vectors.get(op.expert_scales)
    # A choice that experts do not follow only weighs their input: its pairs are not counted.
    followed = any(
        isinstance(later, o.ExpertGate) and later.choice == op.out
        for later in context.plan.graph.ops
    )
    router = Router(
        experts=triton.next_power_of_2(experts),
        used=op.used,
        slots=triton.next_power_of_2(op.used),
        gating=code(op.gating),
        normalize=op.normalize,
        groups=op.groups,
        groups_used=op.groups_used,
        group_best=op.group_best,
        group_slots=triton.next_power_of_2(op.groups),
        group_room=triton.next_power_of_2(experts // op.groups),
    )

    def launch(step: Step) -> None:
        tokens = step.rows(selected)
        tiling = Tiling.of(tokens, op.used, experts, step.phase, device)
        step.start(
            route_kernel,
            (tokens,),
            scores=scores,
            bias=bias,
            expert_scales=expert_scales,
            choice=choice,
            positions=step.inputs.positions,
            groups=groups,
            experts=experts,
            scale=op.scale,
            near=op.near,
            ROUTER=router,
            COUNTED=followed and not tiling.single,
            SELECTED=selected,
            num_warps=1,
            **context.order,
        )
        if tiling.single or not followed:
            return
        pairs = tokens * op.used
        step.start(
            group_kernel,
            (triton.cdiv(pairs, _PAIRS),),
            choice=choice,
            groups=groups,
            most=tiling.most,
            pairs=pairs,
            experts=experts,
            EXPERTS=router.experts,
            USED=op.used,
            COLS=tiling.columns,
            BLOCK=_PAIRS,
            num_warps=4,
            **context.order,
        )

    return launch


@launch_of.register
def expert_gate(op: o.ExpertGate, context: Context) -> Launch:
    """Gate and up of the experts that were picked."""
    width = op.out.width // (op.choice.width // 2)
    out, activation = context.values.tensor(op.out), activation_code(op.activation)
    return _expert_linear(context, op, op.parts, out, width, activation, gated=len(op.parts) == 2)


@launch_of.register
def mix(op: o.ExpertMix, context: Context) -> Launch:
    """Down of the experts, and their mix; with the norm that follows, if it is a linear layer's."""
    work, selected, width = _work(context), context.is_selected(op.out), op.out.width
    part = o.ExpertPart(weight=op.weight, bias=op.bias, first=0, rows=width)
    linear = _expert_linear(context, op, [part], work.parts, width, 0, gated=False)
    choice, out = context.values.tensor(op.choice), context.values.tensor(op.out)
    residual = context.values.tensor(op.residual) if op.residual else None
    experts, used = op.weight.shape[0], op.choice.width // 2
    norm = _next_norm(op, context)

    def launch(step: Step) -> None:
        linear(step)
        step.start(
            mix_kernel,
            (step.rows(selected),),
            parts=work.parts,
            choice=choice,
            counts=work.groups.counts,
            residual=residual,
            out=out,
            norm=norm,
            width=width,
            experts=experts,
            USED=used,
            EXPERTS=triton.next_power_of_2(experts),
            BLOCK=triton.next_power_of_2(max(width, norm.stride)),
            num_warps=8,
            **context.order,
        )

    return launch


def _next_norm(op: o.ExpertMix, context: Context) -> NextNorm:
    x, following = context.memory.x, context.plan.mixed_norms.get(op.out.name)
    if following is None or following.norm is None:
        return NextNorm(None, 0.0, x, 0)
    plans = plan_linear(following, context.model)
    stride = max(plan.sizes.chunks for plan, _ in plans) * CHUNK
    weight = context.vectors.get(following.norm.weight)
    return NextNorm(weight, following.norm.epsilon, x, stride)


def _expert_linear(
    context: Context,
    op: o.ExpertGate | o.ExpertMix,
    parts: Sequence[o.ExpertPart],
    out: torch.Tensor,
    width: int,
    activation: int,
    *,
    gated: bool,
) -> Launch:
    """out[pair] = epilogue(weights of its expert @ x)."""
    device, groups, selected = context.device, _work(context).groups, context.is_selected(op.out)
    plan = plan_experts(op, context.model)
    planes, choice = context.matrices.get(plan), context.values.tensor(op.choice)
    source = LinearInput.of(context, op.source, None, planes.sizes.chunks)
    used = op.choice.width // 2
    own = op.source.width == used * plan.columns and used > 1  # every pair has its own x
    weights = planes.weights._replace(rows=plan.expert_rows)
    epilogue = Epilogue(
        factor=planes.factor / source.scale,
        bias=_expert_bias(context, plan, parts),
        residual=None,
        out=out,
        half_scale=HALF_SCALE,
        starts=(0,),
        widths=(width,),
        bases=(0,),
    )

    def launch(step: Step) -> None:
        if source.before:
            source.before(step)
        tokens = step.rows(selected)
        tiling = Tiling.of(tokens, used, plan.experts, step.phase, device)
        rows, warps = tiling.rows(step.phase)
        stride = plan.columns if own else source.stride
        step.start(
            expert_kernel,
            (triton.cdiv(plan.expert_rows, rows), tiling.most),
            inputs=Rows(source.x, stride, planes.columns),
            pairs_of_input=1 if own else used,
            pairs=tokens * used,
            weights=weights,
            choice=choice,
            groups=groups,
            most=tiling.most,
            epilogue=epilogue,
            TILE=_tile(planes.sizes, rows, tiling.columns, device, even=planes.even),
            FORM=planes.form,
            ACTIVATION=activation,
            GATED=gated,
            SINGLE=tiling.single,
            WHOLE=tiling.whole,
            ASM=device.assembly,
            num_warps=warps,
            **context.order,
        )

    return launch


def _tile(sizes: PlaneSizes, rows: int, columns: int, device: Device, *, even: bool) -> ProductTile:
    return ProductTile(
        rows=rows,
        columns=columns,
        stages=stages_of(sizes, rows, columns, FEW_COLUMNS, device),
        even=even,
        unroll=unroll_of(sizes),
    )


def _expert_bias(
    context: Context, plan: MatrixPlan, parts: Sequence[o.ExpertPart]
) -> torch.Tensor | None:
    """Row by row as the matrix has them."""
    if all(part.bias is None for part in parts):
        return None
    bias = torch.zeros(plan.experts, plan.expert_rows, device=context.device.torch)
    for index, part in enumerate(parts):
        vector = context.vectors.get(part.bias)
        if vector is not None:
            rows = len(parts) * plan.rows[index]
            read = slice(part.first, part.first + part.rows)
            bias[:, index : rows : len(parts)] = vector.view(plan.experts, -1)[:, read]
    return bias
