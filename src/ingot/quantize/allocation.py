"""Which type each tensor gets if the size of the file is given: the least loss that fits.

In: tensors, an importance matrix, and for groups of tensors the loss that one type causes
(`ingot.engine.model.sensitivity` measures it). Out: a type for each tensor. The loss of other types
follows from their errors, because for small errors it grows with their squares; errors are those of
some rows of a tensor. This module does not run models.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ingot.arrays import Floats
from ingot.errors import QuantError
from ingot.gguf import GgmlType as T
from ingot.gguf import GgufLoader, LazyTensor
from ingot.quant import decode, encode
from ingot.quantize.imatrix import ImportanceMatrix
from ingot.quantize.mixes import MIXES, Mix, is_quantizable

FLOATS = (T.F32, T.F16, T.BF16)
_TYPES = (
    T.IQ1_S, T.IQ1_M, T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.Q2_K, T.IQ3_XXS, T.IQ3_S, T.Q3_K, T.IQ4_XS,
    T.IQ4_NL, T.Q4_K, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_K, T.Q5_1, T.Q6_K, T.Q8_0,
)  # fmt: skip
_EXACT = 1 / 30  # of the largest error; weights that lie on a type's grid have much less with it
_SAMPLE = 1 << 16  # weights of a tensor whose errors are computed
_MATRICES = 8  # of a tensor of experts, in a sample


def bits_of(kind: T) -> float:
    """Bits of a weight."""
    return 8 * kind.block_bytes / kind.block_size


def size_as(tensor: LazyTensor, kind: T) -> int:
    """The bytes of a tensor as a type."""
    return prod(tensor.shape) // kind.block_size * kind.block_bytes


def matrices_of(source: GgufLoader) -> list[LazyTensor]:
    """The tensors that get a type; all others stay as they are."""
    found = [t for t in source.tensors.values() if is_quantizable(t.name, t.shape)]
    for tensor in found:
        if tensor.type not in FLOATS:
            raise QuantError(
                f"{source.path} is already quantized ({tensor.name} is {tensor.type.name}); a size "
                "can be reached only from a file of floats (F16, BF16, F32)"
            )
    return found


def candidates(tensor: LazyTensor, least: float = 0) -> list[T]:
    """The types of `least` bits or more that a tensor can get, the smallest first, then its own."""
    fit = [kind for kind in _TYPES if tensor.shape[-1] % kind.block_size == 0]
    return [*sorted((kind for kind in fit if bits_of(kind) >= least), key=bits_of), tensor.type]


@dataclass(frozen=True, slots=True)
class Errors:
    """The squared errors of each type of a tensor, as much as they count."""

    of: Mapping[T, float]

    @classmethod
    def measure(cls, tensor: LazyTensor, imatrix: ImportanceMatrix, least: float = 0) -> "Errors":
        """Encode some rows of a tensor as every type of `least` bits or more."""
        found = dict.fromkeys(candidates(tensor, least), 0.0)
        for values, counts, level in _sample(tensor, imatrix):
            for kind in found:
                if kind is not tensor.type:
                    blocks = encode(values, kind, importance=counts)
                    difference = values - decode(blocks, kind, values.shape)
                    squares = np.square(difference, dtype=np.float64)
                    counted = squares if counts is None else squares * counts
                    found[kind] += level * float(counted.sum())
        return cls(found)

    def probe(self, bits: float) -> T:
        """The type whose loss is measured: of those with an error, the one nearest to so many bits.

        The loss of a type that keeps the weights nearly exactly says nothing about other types.
        """
        enough = _EXACT * max(self.of.values())
        wrong = [kind for kind, error in self.of.items() if error >= enough]
        return min(wrong, key=lambda kind: abs(bits_of(kind) - bits))


def _sample(
    tensor: LazyTensor, imatrix: ImportanceMatrix
) -> Iterable[tuple[Floats, Floats | None, float]]:
    """Some rows of some matrices of a tensor, how much their columns count, and their weight.

    The weight is the mean square of a matrix' inputs times the part of its rows that is missing, so
    that errors are those of its results, and can be compared with those of other tensors.
    """
    *_, rows, columns = tensor.shape
    matrices = prod(tensor.shape[:-2])
    importance = imatrix.of(tensor.name, tensor.shape)
    row_bytes = tensor.nbytes // (matrices * rows)
    stored = tensor.data.reshape(matrices, rows, row_bytes)
    chosen = np.unique(np.linspace(0, matrices - 1, _MATRICES).astype(int))
    count = max(1, _SAMPLE // (columns * len(chosen)))
    places = np.unique(np.linspace(0, rows - 1, count).astype(int))
    for matrix in chosen:
        values = decode(stored[matrix, places], tensor.type, (len(places), columns))
        counts = None if importance is None else importance[min(matrix, len(importance) - 1)]
        level = rows / len(places)
        if importance is not None:
            raw = imatrix.means[tensor.name].reshape(len(importance), columns)
            level *= float(raw[min(matrix, len(importance) - 1)].mean())
        yield values, counts, level


def groups_of(tensors: Sequence[LazyTensor], most: int) -> list[list[LazyTensor]]:
    """Tensors whose loss is measured together: of one kind, in layers beside each other."""
    kinds: dict[str, list[LazyTensor]] = {}
    for tensor in tensors:
        kinds.setdefault(re.sub(r"^blk\.\d+\.", "", tensor.name), []).append(tensor)
    together = 1
    while sum(-(-len(kind) // together) for kind in kinds.values()) > max(most, len(kinds)):
        together += 1
    return [
        kind[at : at + together] for kind in kinds.values() for at in range(0, len(kind), together)
    ]


@dataclass(frozen=True, slots=True)
class Choice:
    """A tensor, and the bytes and the loss of every type that it can get."""

    tensor: LazyTensor
    options: Sequence[tuple[T, int, float]]


def losses_of(
    group: Sequence[LazyTensor],
    errors: Mapping[str, Errors],
    probes: Mapping[str, T],
    loss: float,
) -> list[Choice]:
    """The losses of a group's tensors, from the loss of all of them as their probe types."""
    total = sum(errors[tensor.name].of[probes[tensor.name]] for tensor in group)
    factor = loss / total if total > 0 else 0.0
    return [
        Choice(
            tensor,
            [
                (kind, size_as(tensor, kind), factor * error)
                for kind, error in errors[tensor.name].of.items()
            ],
        )
        for tensor in group
    ]


def allocate(choices: Sequence[Choice], room: int) -> dict[str, T]:
    """The types with the least loss whose bytes fit into `room`; the smallest if none fit.

    Every tensor begins with its smallest type. What lowers the loss most for a byte is done first,
    as long as it fits; of each tensor only types that are better than all that lie between
    others (the convex hull) are steps.
    """
    hulls = {choice.tensor.name: _hull(choice.options) for choice in choices}
    at = dict.fromkeys(hulls, 0)
    left = room - sum(hull[0][1] for hull in hulls.values())
    steps = [
        ((hull[step][2] - hull[step + 1][2]) / (hull[step + 1][1] - hull[step][1]), name, step)
        for name, hull in hulls.items()
        for step in range(len(hull) - 1)
    ]
    for _, name, step in sorted(steps, reverse=True):
        cost = hulls[name][step + 1][1] - hulls[name][step][1]
        if at[name] == step and cost <= left:
            at[name] += 1
            left -= cost
    return {name: hull[at[name]][0] for name, hull in hulls.items()}


def _hull(options: Sequence[tuple[T, int, float]]) -> list[tuple[T, int, float]]:
    """The types on the lower convex hull of loss over bytes, the smallest first."""
    hull: list[tuple[T, int, float]] = []
    for option in sorted(options, key=lambda option: (option[1], option[2])):
        if hull and option[2] >= hull[-1][2]:
            continue  # larger, and not better
        while len(hull) > 1 and _slope(hull[-2], option) <= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(option)
    return hull


def _slope(a: tuple[T, int, float], b: tuple[T, int, float]) -> float:
    return (b[2] - a[2]) / (b[1] - a[1])


def nearest_mix(types: Mapping[str, T], size_of: Callable[[str], int]) -> Mix:
    """The mix that a file of these types says it is: that of the type with the most bytes."""
    sizes: dict[T, int] = {}
    for name, kind in types.items():
        sizes[kind] = sizes.get(kind, 0) + size_of(name)
    largest = max(sizes, key=lambda kind: sizes[kind])
    return next(mix for mix in MIXES.values() if mix.base is largest)
