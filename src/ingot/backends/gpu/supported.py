"""What the GPU backend does not run, refused before anything is sent to the device."""

from ingot.errors import ModelError
from ingot.graph import ComputationGraph


def check_graph(graph: ComputationGraph) -> None:
    """Refuse encoders, whose tokens see the whole text, and models with recurrent states."""
    kind = "encoders" if not graph.causal else "models with states" if graph.states else None
    if kind:
        raise ModelError(f"{kind} do not run on a GPU; open the model with device='cpu'")
