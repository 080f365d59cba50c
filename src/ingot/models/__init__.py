"""Architectures: one file each, found by the name the model file gives.

A `GgufLoader` comes in, a checked `ComputationGraph` goes out. `general.architecture`
names the module (`gpt-oss` is gpt_oss.py); its `network(h)` describes the model. Which
tensors the graph needs, and their shapes, is checked against the file here, before
anything runs.
"""

from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import cast

from ingot.errors import ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.lower import lower
from ingot.models.spec import Network
from ingot.quant import decode

_SHARED = {"hyperparameters", "lower", "spec"}
_ROPE_FACTORS = "rope_freqs.weight"


def architectures() -> list[str]:
    """The names of all supported architectures."""
    return sorted(
        module.name.replace("_", "-")
        for module in iter_modules(__path__)
        if module.name not in _SHARED
    )


def build_graph(model: GgufLoader) -> ComputationGraph:
    """The graph of a model file, every tensor it needs checked."""
    name = model.metadata.string("general.architecture")
    if name not in architectures():
        near = get_close_matches(name, architectures(), n=3, cutoff=0.5)
        raise ModelError(
            f"architecture {name!r} is not supported"
            + (f" (near it: {', '.join(near)})" if near else "")
            + f"; supported are {', '.join(architectures())}"
        )
    factors = None
    if _ROPE_FACTORS in model.tensors:
        tensor = model.tensors[_ROPE_FACTORS]
        factors = decode(tensor.data, tensor.type).tolist()
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    parameters = Hyperparameters(name, model.metadata, len(model.tensors), factors)
    described = cast(Network, module.network(parameters))
    graph = lower(described, model.tensors.__contains__)
    _check_tensors(model, graph)
    return graph


def _check_tensors(model: GgufLoader, graph: ComputationGraph) -> None:
    for weight in graph.weights():
        if weight.name not in model.tensors:
            raise ModelError(
                f"{model.path}: tensor {weight.name} (shape {weight.shape}) is missing; "
                "the file is incomplete or of another architecture than it says"
            )
        found = model.tensors[weight.name].shape
        if found != weight.shape:
            raise ModelError(
                f"{model.path}: tensor {weight.name} has shape {found}, but the metadata "
                f"ask for {weight.shape}"
            )
