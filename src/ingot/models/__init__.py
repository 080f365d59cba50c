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
from ingot.models.expert_checks import check_gating
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.lower import lower
from ingot.models.lower_mtp import PROJECTION, lower_mtp
from ingot.models.spec import Network
from ingot.models.tensor_checks import check_tensors, check_unused

# How the hidden states of a text's tokens become one vector: their mean, the first or the last.
Pooling = Literal["mean", "cls", "last"]
_POOLINGS: dict[int, Pooling] = {1: "mean", 2: "cls", 3: "last"}  # by the number in a file
_RANK = 4

_SHARED = {
    "builder", "checkpoint", "checkpoint_parts", "checkpoint_relative", "checkpoint_states",
    "drafts", "expert_checks", "hyperparameters", "networks", "settings", "spec", "tensor_checks",
}  # fmt: skip
# Read once: a process without file descriptors could not read the folder again.
_MODULES = frozenset(module.name for module in iter_modules(__path__))
_PROJECTOR = "clip"  # what files call themselves that read images or sound for a model
_DRAFT = "draft_"  # prefix of modules that describe drafts, which cannot run as models alone


def architectures() -> list[str]:
    """The names of all supported architectures."""
    modules = (name for name in _MODULES - _SHARED if not name.startswith(("lower", _DRAFT)))
    return sorted("_".join(part.replace("_", "-") for part in name.split("__")) for name in modules)


def module_name(architecture: str) -> str:
    """The module that describes an architecture."""
    return architecture.replace("_", "__").replace("-", "_")


def described(name: str) -> str:
    """What is special about an architecture, in a sentence: its module's docstring."""
    return " ".join((_module(name).__doc__ or "").split())


def checkpoints() -> dict[str, list[tuple[str, Checkpoint]]]:
    """The stored models that can be converted: by class, architectures and their stored forms."""
    found: dict[str, list[tuple[str, Checkpoint]]] = {}
    for name in architectures():
        for checkpoint in stored_forms(name):
            for model in checkpoint.models:
                found.setdefault(model, []).append((name, checkpoint))
    return found


def stored_forms(name: str) -> tuple[Checkpoint, ...]:
    """The forms in which `transformers` stores the models of an architecture."""
    return cast(tuple[Checkpoint, ...], getattr(_module(name), "CHECKPOINTS", ()))


def has_own_mix_rules(name: str) -> bool:
    """Whether llama.cpp's quantizer has rules for an architecture alone (quantize/mixes.py)."""
    return name in architectures() and getattr(_module(name), "OWN_MIX_RULES", False) is True


def is_draft(model: GgufLoader) -> bool:
    """Whether a file guesses tokens for another model and is none by itself (drafts.py)."""
    return _DRAFT + module_name(model.metadata.string("general.architecture")) in _MODULES


def draft_module(model: GgufLoader) -> ModuleType:
    """The module that describes a draft."""
    return _module(model.metadata.string("general.architecture"), _DRAFT)


def _module(name: str, prefix: str = "") -> ModuleType:
    return import_module(f"{__name__}.{prefix}{module_name(name)}")


def build_graph(
    model: GgufLoader,
    context: int | None = None,
    *,
    hidden: bool = False,
    every_row: bool = False,
) -> ComputationGraph:
    """The graph of a model file, every tensor it needs checked.

    `context`: the longest sequence that will run, where the model may choose by it; None: all
    that it allows. `hidden`: what comes out are the rows before the output matrix or the head, or
    those of an encoder-decoder's encoder. `every_row`: those rows are computed for all tokens, not
    only for the wanted ones.
    """
    network, parameters = _describe(model, context)
    graph = lower(network, parameters.has_tensor, every_row=every_row)
    check_tensors(model, graph)
    _check_unused(model, graph, network)
    return lower(network, parameters.has_tensor, hidden=True) if hidden else graph


def mtp_layer(model: GgufLoader) -> int | None:
    """The number of a file's first layer for multi-token prediction, if it has one."""
    name = model.metadata.string("general.architecture")
    layers, mtp = (
        model.metadata.integer(f"{name}.{key}", 0)
        for key in ("block_count", "nextn_predict_layers")
    )
    there = mtp > 0 and f"blk.{layers - mtp}.{PROJECTION}.weight" in model.tensors
    return layers - mtp if there else None


def build_mtp_graph(model: GgufLoader, context: int | None = None) -> ComputationGraph:
    """The graph of a file's first layer for multi-token prediction (lower_mtp.py)."""
    network, parameters = _describe(model, context)
    graph = lower_mtp(network, parameters.has_tensor)
    check_tensors(model, graph)
    return graph


def _describe(model: GgufLoader, context: int | None) -> tuple[Network, Hyperparameters]:
    """The network of a model file."""
    name = model.metadata.string("general.architecture")
    if is_draft(model):
        raise ModelError(
            f"{model.path} is a draft ({name}): it guesses tokens for the model it was trained "
            f"for, and writes no text by itself; open that model with draft={model.path.name!r} or "
            "--draft"
        )
    if name == _PROJECTOR:
        raise ModelError(
            f"{model.path} is a projector ({name}): it reads images or sound for a model, and "
            "writes no text by itself; open the file of that model, which reads text without it"
        )
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
    check_gating(network, parameters)
    return network, parameters


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


def _check_unused(model: GgufLoader, graph: ComputationGraph, network: Network) -> None:
    first = len(network.layers)
    left_out = tuple(f"blk.{first + layer}." for layer in range(len(network.mtp)))
    known = (*network.unread, *(weight.name for weight in graph.weights()))
    check_unused(model, known, left_out)
