"""A second program on a GPU, over the weights of a model that is there already.

A model and another graph of its file come in; a backend with step memory and a cache of its own
goes out. It imports PyTorch.
"""

from ingot.backends.gpu import GpuBackend, GpuPlan
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import KvLayout, whole_blocks

STEP_TOKENS = 1024  # of a causal graph: enough to fill a GPU, and little memory


def add_program(
    first: GpuBackend,
    graph: ComputationGraph,
    file: GgufLoader,
    layout: KvLayout,
    *,
    context: int,
    blocks: int,
    states: int,
) -> GpuBackend | None:
    """A backend for a graph that only reads texts; None if it needs other matrices."""
    tokens = whole_blocks(context)
    plan = GpuPlan.of(
        graph,
        file,
        layout,
        first.device,
        context=context,
        tokens=min(STEP_TOKENS, tokens) if graph.causal else tokens,
        sequences=0,
    )
    if not first.weights.has(plan.matrices):
        return None
    return GpuBackend(plan, file, blocks=blocks, states=states, weights=first.weights)
