"""From the operations of a fused graph to launches: all that does not change is decided once.

Each operation becomes a function of a step that launches its kernels.
"""

from ingot.backends.gpu.lower_experts import expert_gate, mix, route
from ingot.backends.gpu.lower_heads import attend, store_kv
from ingot.backends.gpu.lower_linear import fused_linear
from ingot.backends.gpu.lower_rows import embed, fused_norm, gate_rows, select, softcap
from ingot.backends.gpu.lower_state import State
from ingot.backends.gpu.step import Launch, Program
from ingot.graph import ops as o
from ingot.graph.fusion import (
    ExpertGate,
    ExpertMix,
    FusedGateRows,
    FusedLinear,
    FusedNorm,
    FusedOp,
    StoreKv,
)


def lower(state: State) -> Program:
    """The launches in order."""
    launches = []
    ops = state.graph.ops
    for op, behind in zip(ops, (*ops[1:], None), strict=True):
        launch = mix(state, op, behind) if isinstance(op, ExpertMix) else _launch(state, op)
        launches.append((launch, state.selected))
    if state.cap:
        launches.append((softcap(state), True))
    return Program(launches)


def _launch(state: State, op: FusedOp) -> Launch:
    match op:
        case o.Embed():
            return embed(state, op)
        case FusedLinear():
            return fused_linear(state, op)
        case FusedNorm():
            return fused_norm(state, op)
        case StoreKv():
            return store_kv(state, op)
        case o.Attend():
            return attend(state, op)
        case o.Select():
            launch = select(state, op)
            state.selected = True  # so is every value from here on
            return launch
        case o.Route():
            return route(state, op)
        case ExpertGate():
            return expert_gate(state, op)
        case FusedGateRows():
            return gate_rows(state, op)
        case _:
            raise AssertionError(f"{type(op).__name__} was to be refused (supported.py)")
