"""Whether a file has the tensors that graphs need, and no others.

Graphs and a file come in; nothing goes out, or a `ModelError` that names the tensor.
"""

from collections.abc import Iterable

from ingot.errors import ModelError
from ingot.gguf import HasTensors
from ingot.graph import ComputationGraph
from ingot.models.hyperparameters import ROPE_TENSORS


def check_tensors(model: HasTensors, graph: ComputationGraph) -> None:
    """Every tensor of a graph must be there with its shape."""
    for weight in graph.weights():
        check_tensor(model, weight.name, weight.tensor_shape)


def check_tensor(model: HasTensors, name: str, shape: tuple[int, ...]) -> None:
    """A tensor must be there with this shape."""
    if name not in model.tensors:
        raise ModelError(
            f"{model.path}: tensor {name} (shape {shape}) is missing; "
            "the file is incomplete or of another architecture than it says"
        )
    found = model.tensors[name].shape
    if _without_ones(found) != _without_ones(shape):
        raise ModelError(
            f"{model.path}: tensor {name} has shape {found}, but the metadata ask for {shape}"
        )


def check_unused(model: HasTensors, known: Iterable[str], left_out: tuple[str, ...] = ()) -> None:
    """No tensor may be unknown; names that begin like `left_out` do not count."""
    names = ROPE_TENSORS.union(known)
    unused = [name for name in model.tensors if name not in names and not name.startswith(left_out)]
    if unused:
        raise ModelError(
            f"{model.path}: tensor {unused[0]} ({len(unused)} in all) has no place in this "
            "network; what it would compute without them is not what the file means"
        )


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A matrix of one row may be stored as a vector."""
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
