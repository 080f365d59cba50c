"""From the operations of a fused graph to launches: all that does not change is decided once.

Each operation becomes a function of a step that launches its kernels. The modules that lower a
family of operations register their functions (`launch_of`, and `missing` for what no kernel
computes); this one knows no particular operation.
"""

from ingot.backends.gpu import lower_experts, lower_heads, lower_linear, lower_rows
from ingot.backends.gpu.lower_rows import softcap
from ingot.backends.gpu.lower_state import State, launch_of, missing
from ingot.backends.gpu.step import Program

__all__ = ["lower", "lower_experts", "lower_heads", "lower_linear", "lower_rows", "missing"]


def lower(state: State) -> Program:
    """The launches in order."""
    launches = []
    ops = state.graph.ops
    for op, following in zip(ops, (*ops[1:], None), strict=True):
        state.following = following
        launch = launch_of(op, state)
        state.selected |= op.selects  # so is every value from here on
        launches.append((launch, state.selected))
    if state.cap:
        launches.append((softcap(state), True))
    return Program(launches)
