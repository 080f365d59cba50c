"""ModelPlan: the context and the memory that a model will take, before it is opened.

A path and options come in; only the header of the file is read. Without an asked context, the plan
has the longest one that the model allows and that the memory has room for: for its KV cache and, if
the model is not causal, for a step with all of a text.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ingot.backends.backend import choose_device, choose_devices
from ingot.convert import open_model
from ingot.engine.model import memory
from ingot.engine.model.loaded_model import DEFAULT_CONTEXT
from ingot.engine.model.memory import CacheSize
from ingot.engine.options import EngineOptions
from ingot.errors import ConfigError, GraphError, ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType
from ingot.memory_estimate import arena_bytes
from ingot.models import build_graph

if TYPE_CHECKING:
    from ingot.engine.model.gpu_fit import GpuFit

_ROUND = 1024  # tokens, to which a context that memory limits is rounded down


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The context of a model, and the bytes of its weights, KV cache and arena."""

    context: int
    trained: int  # the longest context that the model allows
    weights: int
    cache: int
    arena: int
    cache_limits: bool = False  # a longer context does not fit the asked size of the cache
    on_gpu: bool = False  # whether layers run on a GPU, as far as this is known before opening

    @property
    def total(self) -> int:
        """All bytes together."""
        return self.weights + self.cache + self.arena

    @property
    def remark(self) -> str:
        """The context in words, and why it is not longer."""
        if self.context == self.trained:
            return f"context of {self.context} tokens, all that the model allows"
        reason = "the cache has no room" if self.cache_limits else "there is no memory"
        return (
            f"context of {self.context} tokens; the model allows {self.trained}, but {reason} "
            "for as many (--context asks for a number)"
        )


def plan_model(path: Path, options: EngineOptions) -> ModelPlan:
    """The plan for a model with these options; an invalid file or option is an error."""
    kv_type = KvType(options.kv_type.lower())
    with open_model(path) as file:
        graph = build_graph(file, options.context or DEFAULT_CONTEXT)
        layout = KvLayout.of(graph.kv_layers, kv_type, graph.states)
        trained = graph.context_length
        context, cache_limits = options.context or 0, False
        if not context:
            context, cache_limits = _longest(graph, file, layout, options)
        on_gpu = _is_on_gpu(graph, file, layout, options, context)
        size = CacheSize.of(layout, context, options.cache_tokens, memory.available())
        return ModelPlan(
            context=context,
            trained=trained,
            weights=sum(tensor.nbytes for tensor in file.tensors.values()),
            cache=size.nbytes(layout),
            arena=arena_bytes(graph, context),
            cache_limits=cache_limits,
            on_gpu=on_gpu,
        )


def _longest(
    graph: ComputationGraph, file: GgufLoader, layout: KvLayout, options: EngineOptions
) -> tuple[int, bool]:
    """The longest context that fits, never less than the engine's own default.

    And whether it is the asked size of the cache that limits it.
    """
    trained = graph.context_length
    room = _gpu_tokens(graph, file, layout, options)
    if room is None:
        room = memory.most_tokens(layout, memory.available())
        if not graph.causal:
            room = min(room, memory.share(memory.available()) // arena_bytes(graph, 1))
    asked = options.cache_tokens if _keeps_tokens(layout) else None
    cache_limits = asked is not None and asked < min(room, trained)
    if asked is not None:
        room = min(room, asked)
    if room < trained:
        room = max(room // _ROUND * _ROUND, DEFAULT_CONTEXT)
    return min(trained, room), cache_limits


def _keeps_tokens(layout: KvLayout) -> bool:
    """Whether a cache has something for each token, not only states of a fixed size."""
    return any(not group.recurrent for group in layout.groups)


def _gpu_tokens(
    graph: ComputationGraph, file: GgufLoader, layout: KvLayout, options: EngineOptions
) -> int | None:
    """The tokens that there is room for beside the whole model on the GPU; None: it is not there.

    If a model keeps nothing for each token, all that it allows fit, or the asked ones.
    """
    keeps = _keeps_tokens(layout)
    context = min(graph.context_length, DEFAULT_CONTEXT) if keeps else graph.context_length
    fit = _gpu_fit(graph, file, layout, options, context)
    if fit is None:
        return None
    return fit.cache_tokens // BLOCK_TOKENS * BLOCK_TOKENS if keeps else fit.cache_tokens


def _is_on_gpu(
    graph: ComputationGraph,
    file: GgufLoader,
    layout: KvLayout,
    options: EngineOptions,
    context: int,
) -> bool:
    """Whether layers of the model will run on a GPU."""
    if options.device == "cpu" or options.gpu_layers == 0:
        return False
    if options.device != "auto":  # or opening it is an error
        return True
    fit = _gpu_fit(graph, file, layout, options, context)
    return fit is not None and fit.layers > 0


def _gpu_fit(
    graph: ComputationGraph,
    file: GgufLoader,
    layout: KvLayout,
    options: EngineOptions,
    context: int,
) -> "GpuFit | None":
    """How much of the model fits the GPUs; None: there are none, or they cannot run the model."""
    if options.device == "cpu":
        return None
    try:
        if options.gpu_split is not None:
            devices = choose_devices(options.device, len(options.gpu_split))
            from ingot.engine.model.gpu_split import SplitPlanner  # noqa: PLC0415 (as below)

            shares, kind = options.gpu_split, layout.type
            planner = SplitPlanner(graph, file, kind, devices, shares, context=context)
            return planner.fit([each.free_memory() for each in devices])
        gpu = choose_device(options.device)
        if gpu is None:
            return None
        from ingot.engine.model.gpu_fit import fit_gpu  # noqa: PLC0415 (PyTorch, if asked for)

        return fit_gpu(graph, file, layout.type, gpu, context=context, room=gpu.free_memory())
    except (ConfigError, ModelError, GraphError):
        return None  # opening the model says what is wrong, or takes the CPU
