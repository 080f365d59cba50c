"""Drafts: files that guess tokens from hidden states of the model they were trained for.

The file of a draft comes in, and that of its target, the model; graphs, tensors and the map of its
vocabulary go out. A draft that does not fit the target is an error before anything runs.
`draft_<name>.py` describes the drafts of an architecture.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from ingot.arrays import Ints
from ingot.errors import ConfigError, ModelError
from ingot.gguf import GgmlType, GgufLoader, LazyTensor
from ingot.models import draft_module
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.lower_draft import DraftGraphs, lower_draft
from ingot.models.spec import DraftSpec
from ingot.models.tensor_checks import check_tensor, check_tensors, check_unused

EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_TOKENS = "tokenizer.ggml.tokens"
_INTEGERS = {GgmlType.I32: "<i4", GgmlType.I64: "<i8"}


@dataclass(frozen=True, slots=True)
class Draft:
    """An open file of a draft, and what it says."""

    file: GgufLoader
    spec: DraftSpec

    @property
    def norms(self) -> tuple[str, str]:
        """The tensors that scale the norms of tokens and of hidden states."""
        token, hidden = self.spec.token_norm, self.spec.hidden_norm
        return f"blk.0.{token.name}.weight", f"blk.0.{hidden.name}.weight"


@dataclass(frozen=True, slots=True)
class DraftTensors:
    """The tensors of a draft, and its target's embedding and output where it has none."""

    path: Path
    tensors: Mapping[str, LazyTensor]


@dataclass(frozen=True, slots=True)
class FittedDraft:
    """A draft that fits its target, ready to be run."""

    graphs: DraftGraphs
    tensors: DraftTensors
    token_map: Ints | None  # the target's token for each token of the draft; None: the same


def read_draft(file: GgufLoader, context: int | None = None) -> Draft:
    """What the file of a draft says; `context` as in `build_graph`."""
    name = file.metadata.string("general.architecture")
    parameters = Hyperparameters(name, file.metadata, file.tensors, context)
    spec = cast(DraftSpec, draft_module(file).draft(parameters))
    return Draft(file, spec)


def require_same_vocabulary(target: GgufLoader, draft: GgufLoader) -> None:
    """Raise an error if tokens of the two mean different things."""
    own, other = (each.metadata.strings(_TOKENS) for each in (target, draft))
    if len(own) != len(other) or any(own.raw(i) != other.raw(i) for i in range(len(own))):
        raise ConfigError(
            f"{draft.path} has another vocabulary than {target.path}; a draft model must have the "
            "same"
        )


def fit_draft(draft: Draft, target: GgufLoader, *, width: int, vocabulary: int) -> FittedDraft:
    """Connect a draft to its target, whose hidden states and embedding have these sizes."""
    spec, path = draft.spec, draft.file.path
    if spec.target_width != width:
        raise ConfigError(
            f"{path} is a draft for hidden states of {spec.target_width} elements, and those of "
            f"{target.path} have {width}; take the draft that was made for this model"
        )
    require_same_vocabulary(target, draft.file)
    if spec.vocabulary != vocabulary:
        raise ConfigError(
            f"{path} is a draft for {spec.vocabulary} tokens, and {target.path} has {vocabulary}; "
            "take the draft that was made for this model"
        )
    graphs, tensors = lower_draft(spec), _with_target(draft, target)
    for graph in (graphs.fuse, graphs.layer):
        check_tensors(tensors, graph)
    for norm in draft.norms:
        check_tensor(tensors, norm, (spec.width,))
    check_tensor(tensors, EMBEDDING, (vocabulary, spec.width))
    weights = (*graphs.fuse.weights(), *graphs.layer.weights())
    maps = () if spec.token_map is None else (spec.token_map,)
    check_unused(draft.file, (EMBEDDING, *draft.norms, *maps, *(each.name for each in weights)))
    return FittedDraft(graphs, tensors, _token_map(draft))


def _with_target(draft: Draft, target: GgufLoader) -> DraftTensors:
    """The draft's tensors, with what it takes from its target."""
    own, spec = draft.file.tensors, draft.spec
    taken = {EMBEDDING: target.tensors.get(EMBEDDING), _OUTPUT: target.tensors.get(_OUTPUT)}
    taken[_OUTPUT] = taken[_OUTPUT] or taken[EMBEDDING]
    lent = {name: tensor for name, tensor in taken.items() if tensor and name not in own}
    if lent and spec.width != spec.target_width:
        raise ModelError(
            f"{draft.file.path} has no tensor {next(iter(lent))}, and the one of {target.path} has "
            f"rows of {spec.target_width} elements instead of {spec.width}; convert the draft again"
        )
    if _OUTPUT in lent and spec.token_map is not None:
        raise ModelError(
            f"{draft.file.path} has a vocabulary of its own ({spec.token_map}) and no tensor "
            f"{_OUTPUT} for it; convert the draft again"
        )
    return DraftTensors(draft.file.path, {**lent, **own})


def _token_map(draft: Draft) -> Ints | None:
    name, path = draft.spec.token_map, draft.file.path
    if name is None:
        return None
    tensor = draft.file.tensors[name]
    if tensor.type not in _INTEGERS:
        raise ModelError(
            f"{path}: tensor {name} is {tensor.type.name}; it must hold whole numbers (I32 or I64)"
        )
    ids = tensor.data.view(_INTEGERS[tensor.type])
    if ids.min() < 0 or ids.max() >= draft.spec.vocabulary:
        raise ModelError(
            f"{path}: tensor {name} must hold token ids from 0 to {draft.spec.vocabulary - 1}"
        )
    if len(np.unique(ids)) < len(ids):
        raise ModelError(
            f"{path}: tensor {name} names some tokens twice; early converters wrote differences "
            "instead of token ids: convert the draft again"
        )
    return ids.astype(np.int32)
