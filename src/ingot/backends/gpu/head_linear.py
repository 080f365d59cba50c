"""Linear maps of single heads: a matrix for each."""

from dataclasses import dataclass

import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.kernels.head_linear import HeadMap, head_linear_kernel
from ingot.backends.gpu.kernels.products import ProductTile, Rows
from ingot.backends.gpu.linear import MAX_COLUMNS, stages_of, unroll_of
from ingot.backends.gpu.lowering import Context, Launch, Step, launch_of
from ingot.backends.gpu.planes import PlaneSizes
from ingot.backends.gpu.rows import LinearInput
from ingot.backends.gpu.values import HALF_SCALE
from ingot.backends.gpu.weights import plan_heads
from ingot.graph import ops as o

_FEW_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class HeadTile:
    """What a program of a linear map of heads takes."""

    rows: int
    columns: int  # tokens
    warps: int

    @classmethod
    def of(cls, tokens: int, phase: ExecutionPhase, device: Device) -> "HeadTile":
        """More rows for more tokens, as in linear layers."""
        if phase is ExecutionPhase.PROMPT:
            return cls(128, MAX_COLUMNS, 8)
        fewest = 8 if device.assembly else 16
        columns = max(fewest, int(triton.next_power_of_2(min(MAX_COLUMNS, tokens))))
        rows = 32 if tokens == 1 else 64 if columns <= _FEW_COLUMNS else 128
        return cls(rows, columns, rows // 32)

    def products(self, sizes: PlaneSizes, device: Device, *, even: bool) -> ProductTile:
        """As the kernel takes it."""
        return ProductTile(
            rows=self.rows,
            columns=self.columns,
            stages=stages_of(sizes, self.rows, self.columns, _FEW_COLUMNS, device),
            even=even,
            unroll=unroll_of(sizes),
        )


@launch_of.register
def head_linear(op: o.HeadLinear, context: Context) -> Launch:
    """A matrix for each head."""
    device, values, selected = context.device, context.values, context.is_selected(op.out)
    plan = plan_heads(op, context.model)
    planes = context.matrices.get(plan)
    source = LinearInput.of(context, op.source, None, -(-op.source.width // 64))
    size, columns = op.source.width // op.heads, op.inputs_of_head
    weights = planes.weights._replace(rows=plan.expert_rows)
    heads = HeadMap(
        factor=planes.factor / source.scale,
        source=values.tensor(op.source) if size > columns else None,
        size=size,
        columns=columns,
        kept=size - columns,
        results=op.results_of_head,
        out=values.tensor(op.out),
        half_scale=HALF_SCALE,
    )
    kept = int(triton.next_power_of_2(max(1, size - columns)))

    def launch(step: Step) -> None:
        if source.before:
            source.before(step)
        tokens = step.rows(selected)
        tile = HeadTile.of(tokens, step.phase, device)
        step.start(
            head_linear_kernel,
            (
                triton.cdiv(plan.expert_rows, tile.rows),
                op.heads,
                triton.cdiv(tokens, tile.columns),
            ),
            inputs=Rows(source.x, source.stride, planes.columns),
            tokens=tokens,
            weights=weights,
            heads=heads,
            KEPT=kept,
            TILE=tile.products(planes.sizes, device, even=planes.even),
            FORM=planes.form,
            ASM=device.assembly,
            num_warps=tile.warps,
            **context.order,
        )

    return launch
