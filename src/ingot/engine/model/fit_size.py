"""Quantize a model to a size: types by what they do to its predictions on a text.

In: an open file of floats, chunks of tokens, the bytes that are allowed. Out: a `Quantization`.
The steps: the errors of all types of each tensor (`ingot.quantize.allocation`), the loss that
groups of tensors cause (`sensitivity`), and the types with the least loss that fit. When the file
is written, later columns of a matrix make up for the errors of earlier ones (`input_products`).
"""

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from ingot.arrays import Ints
from ingot.engine.model.input_products import InputProducts
from ingot.engine.model.sensitivity import Sensitivity
from ingot.errors import QuantError
from ingot.gguf import GgufLoader, GgufWriter
from ingot.gguf.copying import copy_keys, copy_tensor
from ingot.quantize import Quantization
from ingot.quantize.allocation import (
    Errors,
    allocate,
    candidates,
    groups_of,
    losses_of,
    matrices_of,
    nearest_mix,
    size_as,
)
from ingot.quantize.imatrix import ImportanceMatrix

_GROUPS = 64  # of tensors, whose loss is measured one after the other
_TOKENS = 512  # of the text, at most, for each measurement
_COMPENSATED = 32  # chunks of the text on which inputs are measured
_FAR = 1.6  # bits below the mean; the loss of such types is more than their errors say
_MORE_KEYS = 1024  # bytes that the keys of a quantized file add at most

OnProgress = Callable[[str, int, int], None]  # a stage, how much is done, how much there is


def fit_size(
    source: GgufLoader,
    chunks: Sequence[Ints],
    imatrix: ImportanceMatrix,
    *,
    target_size: int | None = None,
    target_bits: float | None = None,
    threads: int,
    progress: OnProgress,
) -> Quantization:
    """Choose types for a file of at most `target_size` bytes, or for so many bits per weight."""
    tensors = matrices_of(source)
    if not tensors:
        raise QuantError(f"{source.path} has no matrices that could be quantized")
    weights = sum(prod(tensor.shape) for tensor in source.tensors.values())
    names = {tensor.name for tensor in tensors}
    kept = sum(t.nbytes for t in source.tensors.values() if t.name not in names)
    if target_size is not None:
        room = target_size - _overhead(source) - kept
    else:
        room = int((target_bits or 0) * weights / 8) - kept
    least = sum(size_as(tensor, candidates(tensor)[0]) for tensor in tensors)
    if least > room:
        raise QuantError(
            f"the matrices of {source.path} take {least} bytes at least, but only {max(room, 0)} "
            "are left for them; choose a larger size"
        )
    bits = 8 * room / sum(prod(tensor.shape) for tensor in tensors)
    lowest = bits - _FAR
    if sum(size_as(tensor, candidates(tensor, lowest)[0]) for tensor in tensors) > room:
        lowest = 0
    errors = {}
    for number, tensor in enumerate(tensors):
        progress("measuring errors", number, len(tensors))
        errors[tensor.name] = Errors.measure(tensor, imatrix, lowest)
    probes = {name: error.probe(bits) for name, error in errors.items()}
    groups = groups_of(tensors, _GROUPS)
    progress("measuring KL divergence", 0, len(groups))
    measured = Sensitivity(source, _spread(chunks), imatrix, threads=threads)
    choices = []
    for number, group in enumerate(groups):
        progress("measuring KL divergence", number, len(groups))
        loss = measured.divergence({tensor.name: probes[tensor.name] for tensor in group})
        choices += losses_of(group, errors, probes, loss)
    types = {tensor.name: tensor.type for tensor in source.tensors.values()}
    types |= allocate(choices, room)
    mix = nearest_mix(types, lambda name: size_as(source.tensors[name], types[name]))
    products = InputProducts(source, chunks[:_COMPENSATED], threads=threads)
    return Quantization(source, mix, types, imatrix, products.root)


def _overhead(source: GgufLoader) -> int:
    """What a file takes beside its tensors, at most."""
    writer = GgufWriter(source.path, alignment=source.alignment)
    copy_keys(source, writer)
    for tensor in source.tensors.values():
        copy_tensor(tensor, writer)
    return len(writer.header()) + _MORE_KEYS + source.alignment * len(source.tensors)


def _spread(chunks: Sequence[Ints]) -> list[Ints]:
    """Chunks from all over the text."""
    count = max(1, min(len(chunks), _TOKENS // len(chunks[0])))
    return [chunks[at] for at in np.linspace(0, len(chunks) - 1, count).astype(int)]
