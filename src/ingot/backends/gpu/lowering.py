"""From the ops of a fused graph to launches: everything that does not change is decided once.

An op becomes a function of a step that launches its kernels. `launch_of` is the table of ops that
the GPU runs, and `missing` the table of what it cannot do; the modules of the kernels (`attention`,
`experts`, `linear`, `rows`) register their functions, and this one knows no particular op. A
function sees its op and a `Context`, which nobody changes, so ops may be lowered in any order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

import torch

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.adapters import AdapterBank, AdapterMemory, AdapterRows
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.inputs import Inputs
from ingot.backends.gpu.kernels.adapters import Uses
from ingot.backends.gpu.values import Values
from ingot.backends.gpu.variants import Start
from ingot.backends.gpu.weights import MatrixStore, Vectors
from ingot.gguf import HasTensors
from ingot.graph import ops as o
from ingot.graph.kv_layout import KvLayout

if TYPE_CHECKING:
    from ingot.backends.gpu.planner import GpuPlan, StepMemory


@dataclass(frozen=True, slots=True)
class Step:
    """A batch on the device, and where its logits go."""

    inputs: Inputs
    phase: ExecutionPhase
    logits: torch.Tensor
    single: bool  # every sequence has one token, and they are decoded
    start: Start  # what launches its kernels
    adapters: AdapterMemory | None = None  # of those that its tokens may use

    def rows(self, selected: bool) -> int:
        """Rows of a value: of all tokens, or of those whose logits are wanted."""
        return self.inputs.wanted_count if selected else self.inputs.tokens

    def adapter_rows(self, selected: bool) -> AdapterRows:
        """The rows of a value, with their adapters."""
        inputs = self.inputs
        assert self.adapters is not None, "the step has adapters"
        uses = Uses(inputs.adapters, inputs.adapter_scales, inputs.wanted if selected else None)
        return AdapterRows(self.adapters, uses, self.rows(selected), self.phase, self.start)


Launch = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class Program:
    """All that a step launches, op by op."""

    launches: Sequence[tuple[Launch, bool]]  # True: only if logits are wanted

    def __len__(self) -> int:
        return len(self.launches)

    @property
    def body(self) -> int:
        """How many operations run for all tokens; the others do for wanted ones only."""
        return next((i for i, (_, selected) in enumerate(self.launches) if selected), len(self))

    def run(self, step: Step, part: slice = slice(None)) -> None:
        """Start every kernel of a step, or of a part of its ops."""
        for launch, selected in self.launches[part]:
            if step.inputs.wanted_count or not selected:
                launch(step)


@dataclass(frozen=True, slots=True)
class Context:
    """A planned model, and where its values, weights and cache are on the device."""

    plan: "GpuPlan"
    model: HasTensors
    values: Values
    vectors: Vectors
    matrices: MatrixStore
    memory: "StepMemory"
    adapters: AdapterBank
    table_stride: int  # blocks of a row of a block table

    @property
    def device(self) -> Device:
        """The device that runs the model."""
        return self.plan.device

    @property
    def layout(self) -> KvLayout:
        """The layout of its cache."""
        return self.plan.layout

    @property
    def order(self) -> dict[str, bool]:
        """How kernels follow each other."""
        return self.device.order()

    def is_selected(self, value: o.Value) -> bool:
        """Whether a value has rows only for the tokens whose logits are wanted."""
        return value.name in self.plan.selected

    @property
    def stores(self) -> Mapping[int, o.StoreKv]:
        """What writes the cache of each layer."""
        return {op.kv_layer: op for op in self.plan.graph.ops if isinstance(op, o.StoreKv)}


@singledispatch
def launch_of(op: o.Op, context: Context) -> Launch:  # noqa: ARG001
    """What launches the kernels of an op."""
    raise AssertionError(f"{type(op).__name__} should have been refused when it was planned")


@singledispatch
def missing(op: o.Op) -> str | None:
    """What no kernel computes of an op, in words; None if all of it runs."""
    known = launch_of.dispatch(type(op)) is not launch_of.dispatch(o.Op)
    return None if known else type(op).__name__


def lower(context: Context) -> Program:
    """The launches of a model, in the order of its ops."""
    ops = context.plan.ops
    return Program(
        [(launch_of(op, context), any(map(context.is_selected, op.outputs))) for op in ops]
    )
