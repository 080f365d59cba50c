"""How much of a model fits a GPU, from the types and shapes of its tensors, before any upload.

In: a model and the size of a GPU. Out: numbers. It imports PyTorch, which counts on a device
without memory.
"""

from collections.abc import Collection
from dataclasses import dataclass

from ingot import _native
from ingot.backends.gpu import Device, Planner
from ingot.engine.model.memory import DEFAULT_RUNNING, CacheSize
from ingot.engine.model.placement import STEP_TOKENS
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import BLOCK_TOKENS, whole_blocks
from ingot.graph.kv_type import KvType

_GPU_STEP_TOKENS = 4096  # fill a GPU: 16 programs of 256 tokens for each 128 rows of a matrix


@dataclass(frozen=True, slots=True)
class GpuFit:
    """What of a model fits a GPU. Bytes are those of all layers."""

    weights: int
    steps: int  # all that is neither weights nor cache
    token: int  # of the cache
    cache_tokens: int  # of the largest cache that fits; 0 if not all layers do
    layers: int  # that fit, with a cache of one context
    of_layers: int
    context: int


def step_tokens(context: int, sequences: int, *, whole: bool, causal: bool = True) -> int:
    """The most tokens of a step, on a GPU that has the whole model or some of its layers.

    Prompts of several sequences share a step, so it may be longer than a context.
    """
    if not causal:  # a text runs whole
        return whole_blocks(context)
    # The CPU, which runs the other layers, takes fewer.
    most = _GPU_STEP_TOKENS if whole else STEP_TOKENS
    return min(most, whole_blocks(context) * max(sequences, 1))


def writes_nothing(graph: ComputationGraph) -> bool:
    """Whether a model only reads texts: it is an encoder or a reranker."""
    return graph.hidden or graph.scores


def make_planner(
    graph: ComputationGraph,
    file: GgufLoader,
    kv_type: KvType,
    device: Device,
    context: int,
    sequences: int = DEFAULT_RUNNING,
    keep: Collection[str] = (),
) -> Planner:
    """The planner of a model that decodes at most so many sequences at once.

    `keep` names values that are there after a step.
    """
    return Planner(
        graph,
        file,
        kv_type,
        device,
        context=context,
        tokens=_native.MAX_GENERATION_TOKENS
        if graph.encoder  # which reads the prompts
        else step_tokens(context, sequences, whole=True, causal=graph.causal),
        split_tokens=step_tokens(context, sequences, whole=False, causal=graph.causal),
        sequences=0 if writes_nothing(graph) else sequences,
        keep=keep,
    )


def fit_gpu(
    graph: ComputationGraph,
    file: GgufLoader,
    kv_type: KvType,
    device: Device,
    *,
    context: int,
    room: int,
) -> GpuFit:
    """How much of the model fits `room` bytes."""
    planner = make_planner(graph, file, kv_type, device, context)
    plan = planner.plan(planner.layers)
    needs, least = plan.needs, CacheSize.of(plan.layout, context, None, 0)
    layers = planner.most_layers(room, least.blocks, least.states)
    tokens = context  # states are as large for any number of tokens
    if needs.block:
        tokens = needs.most_blocks(room, least.states) * BLOCK_TOKENS
    return GpuFit(
        weights=needs.weights,
        steps=needs.total(0) - needs.weights,
        token=needs.block // BLOCK_TOKENS,
        cache_tokens=tokens if layers == planner.layers else 0,
        layers=layers,
        of_layers=planner.layers,
        context=context,
    )
