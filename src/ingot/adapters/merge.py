"""Merge adapters into the weights of a model, as a new file.

An open model and adapters with their scales come in, a GGUF file goes out. Matrices that an adapter
changes are decoded, changed and encoded again, some rows at a time; all others are copied. If the
output matrix is the embedding's and an adapter changes one of both, the file has two.
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from ingot import _native
from ingot.adapters.adapter import EMBEDDING, OUTPUT, TABLES, Adapter, LowRank
from ingot.arrays import Bytes, Floats
from ingot.errors import AdapterError
from ingot.files import require_room
from ingot.gguf import GgmlType, GgufLoader, GgufWriter, LazyTensor
from ingot.gguf.copying import copy_keys, copy_tensor
from ingot.quant import decode, encode

_PIECE = 1 << 22  # weights in memory at once


def merge_adapter(
    model: GgufLoader,
    adapter: Adapter,
    path: Path,
    *,
    kind: GgmlType | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Write the merged model; `kind` is the type of matrices that change, None: the one they have.

    The adapter fits the model (`Adapter.require_fit`).
    """
    writer = GgufWriter(path, alignment=model.alignment)
    copy_keys(model, writer)
    changes_either = not adapter.tensors.keys().isdisjoint((EMBEDDING, OUTPUT))
    unties = OUTPUT not in model.tensors and changes_either
    for name, tensor in model.tensors.items():
        low = adapter.tensors.get(name)
        if low is None:
            copy_tensor(tensor, writer)
        else:
            _add(writer, name, tensor, low, kind, is_table=name in TABLES)
        if name == EMBEDDING and unties:
            added = adapter.tensors.get(OUTPUT)
            if added is None:
                copy_tensor(tensor, writer, OUTPUT)
            else:
                _add(writer, OUTPUT, tensor, added, kind, is_table=False)
    total, done = writer.data_bytes, 0
    require_room(path.parent.resolve(), total, path.name, "choose another disk")

    def report(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    return writer.write(report)


def _add(
    writer: GgufWriter,
    name: str,
    tensor: LazyTensor,
    low: LowRank,
    kind: GgmlType | None,
    *,
    is_table: bool,
) -> None:
    stored = tensor.type if kind is None else kind  # F32 is 0
    columns = tensor.shape[-1]
    encodable = stored is GgmlType.F32 or _native.has_encoder(stored)
    if not encodable or columns % stored.block_size:
        raise AdapterError(
            f"{name} cannot be written as {stored.name}; choose another type with --type, for "
            "example f16"
        )
    pieces = partial(_merged, tensor, low, stored, is_table=is_table)
    writer.add_streamed_tensor(name, stored, tensor.shape, pieces)


def _merged(tensor: LazyTensor, low: LowRank, kind: GgmlType, *, is_table: bool) -> Iterator[Bytes]:
    """The blocks of a changed matrix, some rows at a time."""
    columns = tensor.shape[-1]
    rows = prod(tensor.shape) // columns  # a matrix of one row may be stored as a vector
    row_bytes = tensor.nbytes // rows
    down, up = low.down.floats(), low.up.floats()
    height = rows // low.stacked  # of one expert's matrix
    for first in range(0, rows, step := max(1, _PIECE // columns)):
        last = min(first + step, rows)
        data = tensor.data[first * row_bytes : last * row_bytes]
        values = decode(data, tensor.type, (last - first, columns))
        if is_table:
            product = down[first:last] @ up.T
        else:
            product = np.concatenate(
                [
                    up[max(first, start) : min(last, start + height)] @ _of_rank(down, low, start)
                    for start in range(first // height * height, last, height)
                ]
            )
        merged: Floats = np.ascontiguousarray(values + np.float32(low.scale) * product)
        if kind is GgmlType.F32:
            yield merged.reshape(-1).view(np.uint8)
        else:
            yield encode(merged, kind).reshape(-1)


def _of_rank(down: Floats, low: LowRank, row: int) -> Floats:
    """The down matrix that the expert of a row of `up` has."""
    number = row * low.stacked // low.up.rows
    return down[number * low.rank : (number + 1) * low.rank]
