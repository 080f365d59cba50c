"""A graph as a list to read: every operation, what it reads and writes, and what that takes.

A graph (as described, or fused as it runs) comes in; frozen rows of names and numbers go out,
for whoever shows them (`ingot inspect --graph`, `ingot.graph.drawing`). Says nothing about how.
"""

import re
from dataclasses import dataclass

from ingot.graph import ops as o
from ingot.graph.fusion import (
    ExpertGate,
    ExpertMix,
    FusedGateRows,
    FusedGraph,
    FusedLinear,
    FusedNorm,
    FusedOp,
    StoreKv,
)
from ingot.graph.graph import ComputationGraph
from ingot.graph.memory_plan import MemoryPlan, Slot

_FLOAT = 4
_LAYER = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class ListedValue:
    """A value, its bytes for each token, and its place and life in the arena."""

    name: str
    width: int
    slot: Slot | None  # None: the logits, which go where the caller wants them

    @property
    def bytes(self) -> int:
        """Bytes per token."""
        return self.width * _FLOAT


@dataclass(frozen=True, slots=True)
class ListedOp:
    """An operation in words."""

    kind: str
    remarks: tuple[str, ...]
    reads: tuple[str, ...]
    weights: tuple[o.Weight, ...]
    writes: tuple[ListedValue, ...]
    cache: str | None  # "written", "read" or "moved on", where it uses the layer's cache

    @property
    def layer(self) -> int | None:
        """The layer it belongs to, by the names of its values."""
        names = [value.name for value in self.writes] or list(self.reads)
        found = _LAYER.match(names[0]) if names else None
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class GraphListing:
    """Operations in the order they run."""

    ops: tuple[ListedOp, ...]
    arena: int  # bytes per token, shared by values that are not alive together
    unshared: int  # bytes per token that the same values would take side by side

    @classmethod
    def of(cls, graph: ComputationGraph | FusedGraph) -> "GraphListing":
        """List a graph."""
        plan = MemoryPlan.of(graph)
        return cls(
            ops=tuple(_listed(op, plan) for op in graph.ops),
            arena=plan.size,
            unshared=sum(slot.size for slot in plan.slots.values()),
        )


def _listed(op: o.Op | FusedOp, plan: MemoryPlan) -> ListedOp:
    kind, remarks, cache = _words(op)
    return ListedOp(
        kind=kind,
        remarks=tuple(remark for remark in remarks if remark),
        reads=tuple(value.name for value in op.inputs),
        weights=_weights(op),
        writes=tuple(
            ListedValue(value.name, value.width, plan.slots.get(value.name)) for value in op.outputs
        ),
        cache=cache,
    )


def _weights(op: o.Op | FusedOp) -> tuple[o.Weight, ...]:
    match op:
        case FusedLinear():
            own = [weight for part in op.parts for weight in (part.weight, part.bias) if weight]
            return (*_norm_weights(op.norm), *own)
        case FusedNorm():
            return _norm_weights(op.norm)
        case StoreKv():
            return (*_norm_weights(op.query_norm), *_norm_weights(op.key_norm))
        case ExpertGate():
            return (*op.gate.weights, *(op.up.weights if op.up else ()))
        case ExpertMix():
            return op.linear.weights
        case FusedGateRows():
            return ()
        case _:
            return op.weights


def _norm_weights(norm: o.Norm | None) -> tuple[o.Weight, ...]:
    return norm.weights if norm else ()


def _words(op: o.Op | FusedOp) -> tuple[str, tuple[str, ...], str | None]:
    """What an operation is called, what is special about it, what it does to the cache."""
    match op:
        case o.Embed():
            added = ("+ positions" if op.positions else "", "+ types" if op.types else "")
            return "embed", (_times(op.scale), *added), None
        case o.Norm():
            return "norm", (_norm(op),), None
        case FusedNorm():
            return "norm", (_norm(op.norm), "+ residual" if op.residual else ""), None
        case o.Linear():
            return "linear", (_times(op.scale),), None
        case FusedLinear():
            gate = f"{op.activation}(gate)" if op.activation else ""
            residual = any(part.residual for part in op.parts)
            return (
                "linear",
                (
                    f"after {op.norm.kind} norm" if op.norm else "",
                    f"{gate} * up" if gate and len(op.parts) > 1 else gate,
                    _times(op.parts[0].scale),
                    "+ residual" if residual else "",
                ),
                None,
            )
        case o.Rope():
            return "rope", (_rope(op),), None
        case o.WriteKv():
            return "write kv", (), "written"
        case StoreKv():
            heads = "head norms" if op.query_norm or op.key_norm else ""
            return "store kv", (heads, _rope(op.rope) if op.rope else ""), "written"
        case o.Attend():
            return (
                "attend",
                (
                    f"{op.heads} heads over {op.kv_heads}",
                    "" if op.causal else "both ways",
                    f"window {op.window}" if op.window else "",
                    f"soft cap {op.softcap:g}" if op.softcap else "",
                    "sinks" if op.sinks else "",
                ),
                "read",
            )
        case o.CausalConv():
            return "convolve", (f"{op.weight.shape[1]} taps",), "moved on"
        case o.StateScan():
            heads = f"{op.heads} heads" + (f" in {op.groups} groups" if op.groups > 1 else "")
            return "scan", (heads, f"{op.states} states"), "moved on"
        case _:
            kind, remarks = _words_without_cache(op)
            return kind, remarks, None


def _words_without_cache(op: o.Op | FusedOp) -> tuple[str, tuple[str, ...]]:
    match op:
        case o.TakeRows():
            return "take rows", ()
        case o.Activate():
            return "activate", (f"{op.kind}(gate)" + (" * up" if op.up else ""),)
        case o.SoftCap():
            return "soft cap", (f"{op.cap:g}",)
        case o.Route():
            return "route", _route(op)
        case o.ExpertLinear():
            return "expert linear", (_experts(op),)
        case ExpertGate():
            gate = f"{op.activation}(gate)" + (" * up" if op.up else "")
            return "expert gate", (_experts(op.gate), gate)
        case ExpertMix():
            mixed = ("+ residual" if op.residual else "",)
            return "expert mix", (_experts(op.linear), *mixed)
        case o.MixExperts():
            return "expert mix", ()
        case o.GateRows():
            return "gate rows", ("sigmoid(gate)",)
        case FusedGateRows():
            return "gate rows", ("sigmoid(gate)", "+ residual" if op.residual else "")
        case _:
            return type(op).__name__.lower(), ()


def _times(scale: float) -> str:
    return f"times {scale:g}" if scale != 1 else ""


def _norm(norm: o.Norm) -> str:
    per_head = " of each head" if norm.run != norm.source.width else ""
    return f"{norm.kind}{per_head}"


def _rope(rope: o.Rope) -> str:
    scaled = f" times {rope.magnitude:g}" if rope.magnitude != 1 else ""
    return f"turn {len(rope.frequencies)} pairs ({rope.layout}){scaled}"


def _route(route: o.Route) -> tuple[str, ...]:
    return (
        f"{route.used} of {route.scores.width}",
        str(route.gating),
        "selection bias" if route.selection_bias else "",
        "normalized" if route.normalize else "",
        f"times {route.scale:g}" if route.scale != 1 else "",
    )


def _experts(linear: o.ExpertLinear) -> str:
    return f"{linear.choice.width // 2} of {linear.weight.shape[0]} experts"
