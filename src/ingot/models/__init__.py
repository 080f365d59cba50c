"""Architectures: one file each, found by the name the model file gives.

A `GgufLoader` comes in, a checked `ComputationGraph` goes out. `general.architecture`
names the module: a `-` is `_` there, a `_` is `__` (`gpt-oss` is gpt_oss.py, `seed_oss` is
seed__oss.py). Its `network(h)` describes the model. Which tensors the graph needs, and their
shapes, is checked against the file here, before anything runs.
"""

from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Literal, cast

from ingot.errors import ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.models.checkpoint import Checkpoint
from ingot.models.hyperparameters import ROPE_TENSORS, Hyperparameters
from ingot.models.lower import lower
from ingot.models.spec import Network

# How the hidden states of a text's tokens become one vector: their mean, the first or the last.
Pooling = Literal["mean", "cls", "last"]
_POOLINGS: dict[int, Pooling] = {1: "mean", 2: "cls", 3: "last"}  # by the number in a file
_RANK = 4

_SHARED = {
    "builder",
    "checkpoint",
    "hyperparameters",
    "lower",
    "lower_experts",
    "lower_latents",
    "lower_states",
    "settings",
    "spec",
}


def architectures() -> list[str]:
    """The names of all supported architectures."""
    names = (module.name for module in iter_modules(__path__))
    modules = (name for name in names if name not in _SHARED and not name.startswith("lower"))
    return sorted("_".join(part.replace("_", "-") for part in name.split("__")) for name in modules)


def module_name(architecture: str) -> str:
    """The module that describes an architecture."""
    return architecture.replace("_", "__").replace("-", "_")


def described(name: str) -> str:
    """What is special about an architecture, in a sentence: its module's docstring."""
    return " ".join((_module(name).__doc__ or "").split())


def checkpoints() -> dict[str, tuple[str, Checkpoint]]:
    """The stored models that can be converted: by class, the architecture and its stored form."""
    return {
        model: (name, checkpoint)
        for name in architectures()
        for checkpoint in cast(tuple[Checkpoint, ...], getattr(_module(name), "CHECKPOINTS", ()))
        for model in checkpoint.models
    }


def _module(name: str) -> ModuleType:
    return import_module(f"{__name__}.{module_name(name)}")


def build_graph(
    model: GgufLoader, context: int | None = None, *, hidden: bool = False
) -> ComputationGraph:
    """The graph of a model file, every tensor it needs checked.

    `context`: the longest sequence that will run, where the model may choose by it; None: all
    that it allows. `hidden`: what comes out are the rows before the output matrix or the head.
    """
    name = model.metadata.string("general.architecture")
    if name not in architectures():
        near = get_close_matches(name, architectures(), n=3)
        raise ModelError(
            f"architecture {name!r} is not supported"
            + (f" (near it: {', '.join(near)})" if near else "")
            + "; `ingot inspect --architectures` lists those that are"
        )
    if not model.tensors:
        raise ModelError(
            f"{model.path} has no weights: it is a vocabulary only, for `Tokenizer.from_gguf` and "
            "`ingot tokenize`; take a file with weights to run the model"
        )
    parameters = Hyperparameters(name, model.metadata, model.tensors, context)
    network = cast(Network, _module(name).network(parameters))
    graph = lower(network, parameters.has_tensor)
    _check_tensors(model, graph, network)
    return lower(network, parameters.has_tensor, hidden=True) if hidden else graph


def pooling(model: GgufLoader) -> Pooling:
    """The pooling that a model file states, or the mean."""
    return _POOLINGS.get(_pooling_number(model), "mean")


def is_embedder(model: GgufLoader) -> bool:
    """Whether a file says how to pool: it is meant for embeddings."""
    return _pooling_number(model) in _POOLINGS


def is_reranker(model: GgufLoader) -> bool:
    """Whether a head that scores texts takes the place of pooling."""
    return _pooling_number(model) == _RANK


def _pooling_number(model: GgufLoader) -> int:
    key = f"{model.metadata.string('general.architecture')}.pooling_type"
    number = model.metadata.integer(key, 0)
    if number not in (0, _RANK, *_POOLINGS):
        raise ModelError(f"{model.path}: {key} is {number}; 0 to {_RANK} are known")
    return number


def _check_tensors(model: GgufLoader, graph: ComputationGraph, network: Network) -> None:
    for weight in graph.weights():
        if weight.name not in model.tensors:
            raise ModelError(
                f"{model.path}: tensor {weight.name} (shape {weight.tensor_shape}) is missing; "
                "the file is incomplete or of another architecture than it says"
            )
        found = model.tensors[weight.name].shape
        if _without_ones(found) != _without_ones(weight.tensor_shape):
            raise ModelError(
                f"{model.path}: tensor {weight.name} has shape {found}, but the metadata "
                f"ask for {weight.tensor_shape}"
            )
    known = ROPE_TENSORS | {weight.name for weight in graph.weights()}
    first = len(network.layers)
    left_out = tuple(f"blk.{first + layer}." for layer in range(network.mtp_layers))
    unused = [name for name in model.tensors if name not in known and not name.startswith(left_out)]
    if unused:
        raise ModelError(
            f"{model.path}: tensor {unused[0]} ({len(unused)} in all) has no place in this "
            "network; what it would compute without them is not what the file means"
        )


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A matrix of one row may be stored as a vector."""
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
