"""Hand an operation over to native code: field by field, by the roles of its fields.

The native module has a record for every operation that the CPU runs, with the same name and the
same fields (`_native.OPERATIONS`), and for the parts of operations (`_native.PARTS`). Values become
numbers, weights become views of the mapped file or float32 arrays, enum members become their
native twins. Knows no particular operation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.adapters import LowRank
from ingot.backends.precision import Precision
from ingot.errors import ModelError
from ingot.gguf import HasTensors
from ingot.graph import ops as o
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.quant import decode

_LINE = 64  # bytes of a cache line

ENUMS: tuple[type[Enum], ...] = (
    o.Activation,
    o.NormKind,
    o.RopeLayout,
    o.SeenPart,
    o.Gating,
    Precision,
)


def _twins() -> Mapping[tuple[type[Enum], str], Enum]:
    """The native twin of every member of the enums that both sides have.

    By enum and name: members of two enums that have the same text are equal.
    """
    twins: dict[tuple[type[Enum], str], Enum] = {}
    for kind in ENUMS:
        native = _native.CODES[kind.__name__].__members__
        if list(native) != list(kind.__members__):
            raise ImportError(
                f"{kind.__name__} is {', '.join(kind.__members__)} in {kind.__module__} and "
                f"{', '.join(native)} in native/kernels/codes.h: build the native module again"
            )
        twins.update(((kind, name), native[name]) for name in kind.__members__)
    return twins


_TWINS = _twins()


def native_precision(precision: Precision) -> Enum:
    """The native twin of a precision."""
    return _TWINS[Precision, precision.name]


def native_low_ranks(lows: Sequence[LowRank | None]) -> Iterator[object | None]:
    """What an adapter adds to matrices, for native code: copies, in the order of the list."""
    matrices = [
        matrix
        for low in lows
        if low is not None
        for matrix in (low.down, low.up.panels(_native.UP_PANEL, low.stacked))
    ]
    copies = _together([matrix.data for matrix in matrices])
    handed = (
        _native.PARTS["Matrix"](
            data=copy, type=int(matrix.type), rows=matrix.rows, columns=matrix.columns
        )
        for matrix, copy in zip(matrices, copies, strict=True)
    )
    for low in lows:
        if low is None:
            yield None
        else:
            yield _native.PARTS["LowRank"](down=next(handed), up=next(handed), scale=low.scale)


def _together(arrays: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    """Copies in one piece of memory, each at the start of a cache line.

    NumPy asks for huge pages for a large piece. Adapters are read a few kilobytes at a time, and
    from small pages many of these wait for an address.
    """
    ends = np.cumsum([-(-array.nbytes // _LINE) * _LINE for array in arrays], dtype=np.int64)
    memory = np.empty(int(ends[-1]) + _LINE if arrays else 0, np.uint8)
    places = np.split(memory[-memory.ctypes.data % _LINE :], ends)
    copies = [place[: array.nbytes] for place, array in zip(places, arrays, strict=False)]
    for copy, array in zip(copies, arrays, strict=True):
        copy[:] = array
    return copies


def stored_as(type: KvType) -> Enum:
    """The native twin of a storage of keys and values, if the kernels know it."""
    known = _native.CODES["KvType"].__members__
    if type.name not in known:
        names = ", ".join(KvType[name] for name in known)
        raise ModelError(f"the CPU cannot store keys and values as {type}; it can as {names}")
    return known[type.name]


@dataclass(frozen=True, slots=True)
class Handover:
    """What the records of a graph point to: its weights, and the pools of its cache."""

    model: HasTensors
    layout: KvLayout
    kv_layers: tuple[o.KvLayer, ...]
    pools: Sequence[NDArray[np.uint8]]  # by group
    value: Callable[[o.Value], int]  # the number of a value in the program

    def operation(self, op: o.Op) -> _native.Operation:
        """The native record of an operation."""
        make = _native.OPERATIONS.get(type(op).__name__)
        if make is None:
            raise ModelError(f"the CPU backend has no {type(op).__name__}")
        return make(**self._fields(op))

    def _fields(self, record: o.Record) -> dict[str, Any]:
        return {
            name: self._field(getattr(record, name), role)
            for name, role in record.roles()
            if role is not o.Role.LAYER
        }

    def _field(self, item: Any, role: o.Role | None) -> Any:
        match item, role:
            case None, _:
                return None
            case o.Value(), _:
                return self.value(item)
            case o.Weight(), o.Role.VECTOR:
                return self._vector(item)
            case o.Weight(), _:
                return self._matrix(item, role)
            case _, o.Role.KV_LAYER:
                return self._kv_place(item)
            case _, o.Role.STATE:
                return self._state_place(item)
            case o.Record(), _:
                return _native.PARTS[type(item).__name__](**self._fields(item))
            case Enum(), _:
                return _TWINS[type(item), item.name]
            case tuple(), _:
                return [self._field(each, None) for each in item]
            case _:
                return item

    def _matrix(self, weight: o.Weight, role: o.Role | None) -> object:
        tensor = self.model.tensors[weight.name]
        if role is o.Role.MATRIX and not _native.has_linear(tensor.type):
            raise ModelError(
                f"{self.model.path}: tensor {weight.name} is {tensor.type.name}, which the CPU "
                "cannot multiply; convert it to F32 or to a quantized type"
            )
        rows = tensor.data.reshape(weight.tensor_shape[0], -1)[weight.rows]
        return _native.PARTS["Matrix"](
            data=rows.reshape(-1),
            type=int(tensor.type),
            rows=prod(weight.shape[:-1]),
            columns=weight.shape[-1],
        )

    def _vector(self, weight: o.Weight) -> NDArray[np.float32]:
        tensor = self.model.tensors[weight.name]
        floats = decode(tensor.data, tensor.type).reshape(weight.tensor_shape)
        return floats[weight.rows].reshape(-1)

    def _kv_place(self, number: int) -> object:
        place = self.layout.places[number]
        return _native.PARTS["KvPlace"](
            group=place.group,
            pool=self.pools[place.group],
            block_bytes=self.layout.groups[place.group].block_bytes,
            offset=place.offset,
            type=stored_as(self.layout.type),
            head_size=self.kv_layers[number].head_size,
            shared_value=self.kv_layers[number].shared_value,
        )

    def _state_place(self, number: int) -> object:
        place = self.layout.states[number]
        return _native.PARTS["StatePlace"](
            group=place.group,
            pool=self.pools[place.group],
            block_bytes=self.layout.groups[place.group].block_bytes,
            offset=place.offset,
        )
