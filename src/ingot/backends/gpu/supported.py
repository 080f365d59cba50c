"""What the GPU backend does not run, refused before anything is sent to the device."""

from ingot.errors import ModelError
from ingot.graph import ComputationGraph
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

MAX_PARTS = 3  # of a linear map, in one matrix
_KNOWN = (
    o.Embed,
    FusedLinear,
    FusedNorm,
    StoreKv,
    o.Attend,
    o.Select,
    o.Route,
    ExpertGate,
    ExpertMix,
    FusedGateRows,
)


def check_graph(graph: ComputationGraph) -> None:
    """Refuse encoders, whose tokens see the whole text, and models with recurrent states."""
    kind = "encoders" if not graph.causal else "models with states" if graph.states else None
    if kind:
        raise ModelError(f"{kind} do not run on a GPU; open the model with device='cpu'")


def check_ops(graph: FusedGraph) -> None:
    """Refuse operations, and kinds of them, that no kernel computes."""
    for op in graph.ops:
        if missing := _missing(op):
            raise ModelError(f"the GPU backend has no {missing}; open the model with device='cpu'")


def _missing(op: FusedOp) -> str | None:
    match op:
        case _ if not isinstance(op, _KNOWN):
            return type(op).__name__
        case o.Embed() if op.types:
            return "embeddings of types"
        case FusedLinear() if len(op.parts) > MAX_PARTS:
            return f"linear maps of more than {MAX_PARTS} matrices"
        case StoreKv() if any(norm.bias for norm in (op.query_norm, op.key_norm) if norm):
            return "norms of heads with biases"
        case FusedLinear() | FusedNorm() if op.norm and op.norm.weight is None:
            return "norms without weights"
    return None
