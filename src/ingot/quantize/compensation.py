"""Rounding with compensation: later columns of a matrix make up for the errors of earlier ones.

In: a matrix, and the products of its inputs on a text, X^T X. Out: blocks of a type. If e is the
error of a row, the squared error of what it computes is e X^T X e^T. An importance matrix knows
only the diagonal of X^T X; but inputs go together, and then errors can cancel. With X^T X = R R^T
and R upper triangular, the squared error is that of e R, and its block of columns B is

    e_B R_BB + (the errors of the columns before B) R_B

So blocks are rounded from the first columns to the last, each not to its weights, but to what makes
this sum small. It is GPTQ's update, written so that no inverse is needed. Within a block the
encoder of the type decides, with the diagonal of R_BB R_BB^T as its importance. This module does
not run models.
"""

import numpy as np

from ingot.arrays import Bytes, Floats
from ingot.gguf import GgmlType
from ingot.quant import decode, encode

_DAMPING = 0.01  # of the mean square of an input: a text is short, and other texts differ
_LEAST = 32  # columns that are rounded together


def root_of(products: Floats) -> Floats | None:
    """R of X^T X, slightly damped; None if there is nothing to compensate with."""
    damped = products.astype(np.float64)
    added = _DAMPING * float(np.trace(damped)) / len(damped)
    if not added > 0 or not np.isfinite(damped).all():
        return None
    damped[np.diag_indices_from(damped)] += added
    try:
        reversed_root = np.linalg.cholesky(damped[::-1, ::-1])
    except np.linalg.LinAlgError:
        return None
    return np.ascontiguousarray(reversed_root[::-1, ::-1], np.float32)


def encode_compensated(
    values: Floats, root: Floats, kind: GgmlType, threads: int | None = None
) -> Bytes:
    """Blocks of a type for rows of a matrix: [rows, bytes]."""
    rows, columns = values.shape
    size = max(kind.block_size, _LEAST)
    bytes_of = kind.block_bytes / kind.block_size
    blocks = np.empty((rows, int(columns * bytes_of)), np.uint8)
    errors = np.empty_like(values)
    for first in range(0, columns, size):
        last = min(first + size, columns)
        square = root[first:last, first:last]
        wanted = values[:, first:last]
        if first:
            carried = errors[:, :first] @ root[:first, first:last]
            wanted = wanted + carried @ np.linalg.inv(square)
        counts = np.einsum("ij,ij->i", square, square)
        coded = encode(wanted, kind, threads, importance=counts / counts.mean())
        errors[:, first:last] = values[:, first:last] - decode(coded, kind, wanted.shape, threads)
        blocks[:, int(first * bytes_of) : int(last * bytes_of)] = coded
    return blocks
