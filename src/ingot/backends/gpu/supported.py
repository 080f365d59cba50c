"""What the GPU backend does not run, refused before anything is sent to the device."""

from ingot.backends.gpu.lowering import missing
from ingot.errors import ModelError
from ingot.graph import ComputationGraph
from ingot.graph.fusion import FusedGraph


def check_graph(graph: ComputationGraph) -> None:
    """Refuse encoders, whose tokens see the whole text, and models with recurrent states."""
    kind = "encoders" if not graph.causal else "models with states" if graph.states else None
    if kind:
        raise ModelError(f"{kind} do not run on a GPU; open the model with device='cpu'")


def check_ops(graph: FusedGraph) -> None:
    """Refuse operations, and kinds of them, that no kernel computes."""
    for op in graph.ops:
        if lacking := missing(op):
            raise ModelError(f"the GPU backend has no {lacking}; open the model with device='cpu'")
