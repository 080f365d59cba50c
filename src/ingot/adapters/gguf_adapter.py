"""Adapter files of llama.cpp: a GGUF file with pairs NAME.lora_a and NAME.lora_b.

    general.type = adapter, general.architecture = that of the model
    adapter.type = lora, adapter.lora.alpha

A pair adds alpha / rank times its product; without an alpha, the product itself. The pair of a
stack of experts has a third dimension, the expert.
"""

import math
import os
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ingot.adapters.adapter import TYPES, Adapter, FloatMatrix, LowRank
from ingot.errors import AdapterError, GgufError
from ingot.gguf import GgmlType, GgufLoader, GgufWriter, LazyTensor, ValueType
from ingot.quant import decode, encode

_A, _B = ".lora_a", ".lora_b"
_ALPHA = "adapter.lora.alpha"
_TASK, _PREFIX = "adapter.lora.task_name", "adapter.lora.prompt_prefix"
_INVOCATION = "adapter.alora.invocation_tokens"
_VIEWS = {GgmlType.F32: np.float32, GgmlType.F16: np.float16, GgmlType.BF16: np.uint16}


def read_gguf_adapter(path: str | os.PathLike[str], architecture: str) -> Adapter:
    """The adapter of a file for a model of this architecture; all of it is read into memory."""
    with GgufLoader(path, mapped=False) as file:
        _require_lora(file, architecture)
        alpha = file.metadata.number(_ALPHA, 0.0)
        if not math.isfinite(alpha):
            raise AdapterError(f"{path}: {_ALPHA} is {alpha}")
        names: dict[str, None] = {}
        for name in file.tensors:
            if not name.endswith((_A, _B)):
                raise AdapterError(
                    f"{path}: tensor {name} is neither {_A} nor {_B} of a pair; adapters that "
                    "replace whole tensors are not supported"
                )
            names[name.removesuffix(_A).removesuffix(_B)] = None
        return Adapter(
            str(path),
            {name: _pair(file, name, alpha) for name in names},
            task=file.metadata.string(_TASK, ""),
            prompt_prefix=file.metadata.string(_PREFIX, ""),
        )


class AdapterLabels(NamedTuple):
    """What a file says about the use of its adapter."""

    task_name: str = ""
    prompt_prefix: str = ""


def adapter_labels(path: str | os.PathLike[str]) -> AdapterLabels:
    """What a file says about its use, from its header; nothing if it cannot be read."""
    try:
        with GgufLoader(path) as file:
            return AdapterLabels(file.metadata.string(_TASK, ""), file.metadata.string(_PREFIX, ""))
    except (GgufError, OSError):
        return AdapterLabels()


def _require_lora(file: GgufLoader, architecture: str) -> None:
    metadata = file.metadata
    kind = metadata.string("general.type", "model")
    if kind != "adapter":
        raise AdapterError(f"{file.path} is no adapter: its general.type is {kind!r}")
    method = metadata.string("adapter.type", "")
    if method != "lora":
        raise AdapterError(
            f"{file.path} is an adapter of the type {method!r}; only 'lora' is known"
        )
    own = metadata.string("general.architecture")
    if own != architecture:
        raise AdapterError(
            f"{file.path} is for models of the architecture {own!r}, and the model is "
            f"{architecture!r}"
        )
    if _INVOCATION in metadata:
        raise AdapterError(
            f"{file.path} is an activated LoRA, which begins at an invocation in the prompt; "
            "such adapters are not supported"
        )


def _pair(file: GgufLoader, name: str, alpha: float) -> LowRank:
    for side in (_A, _B):
        if name + side not in file.tensors:
            raise AdapterError(f"{file.path}: {name} has no {side}; the file is incomplete")
    sides = [file.tensors[name + side] for side in (_A, _B)]
    experts = {tensor.shape[0] if len(tensor.shape) == 3 else 0 for tensor in sides}
    if len(experts) > 1:
        raise AdapterError(f"{file.path}: {name} has an A and a B of different numbers of experts")
    down, up = (_matrix(file, tensor) for tensor in sides)
    return LowRank(down, up, alpha / up.columns if alpha else 1.0, experts.pop())


def _matrix(file: GgufLoader, tensor: LazyTensor) -> FloatMatrix:
    if len(tensor.shape) == 1:  # a matrix of one row
        shape: tuple[int, ...] = (1, *tensor.shape)
    elif len(tensor.shape) <= 3:
        shape = (prod(tensor.shape[:-1]), tensor.shape[-1])
    else:
        raise AdapterError(
            f"{file.path}: {tensor.name} has {len(tensor.shape)} dimensions; matrices have 2, and "
            "those of experts 3"
        )
    if tensor.type not in TYPES:
        return FloatMatrix.of(decode(tensor.data, tensor.type, shape))
    return FloatMatrix(tensor.type, tensor.data.view(_VIEWS[tensor.type]).reshape(shape))


def write_gguf_adapter(
    adapter: Adapter,
    architecture: str,
    path: str | os.PathLike[str],
    *,
    name: str,
    kind: GgmlType | None = None,
) -> None:
    """Write an adapter file; `kind` is the type of its tensors, None: the one they have.

    A file has one alpha. If the scales of the tensors are not those of one alpha, they are
    multiplied into the tensors.
    """
    factors = {tensor: low.scale * low.rank for tensor, low in adapter.tensors.items()}
    alpha = next(iter(factors.values()))
    if not all(math.isclose(factor, alpha, rel_tol=1e-6) for factor in factors.values()):
        alpha = 0.0
    writer = GgufWriter(Path(path))
    writer.add("general.architecture", architecture)
    writer.add("general.type", "adapter")
    writer.add("general.name", name)
    writer.add("adapter.type", "lora")
    writer.add(_ALPHA, alpha, ValueType.FLOAT32)
    for tensor, low in adapter.tensors.items():
        up = low.up if alpha else FloatMatrix.of(low.up.floats() * np.float32(low.scale))
        for side, matrix in ((_A, low.down), (_B, up)):
            stored = matrix if kind is None else _as_type(matrix, kind)
            shape: tuple[int, ...] = (stored.rows // low.stacked, stored.columns)
            if low.experts:
                shape = (low.experts, *shape)
            writer.add_tensor(tensor + side, stored.data, stored.type, shape)
    writer.write()


def _as_type(matrix: FloatMatrix, kind: GgmlType) -> FloatMatrix:
    if matrix.type is kind:
        return matrix
    blocks = encode(matrix.floats(), kind) if kind is not GgmlType.F32 else matrix.floats()
    shape = (matrix.rows, matrix.columns)
    return FloatMatrix(kind, blocks.reshape(-1).view(np.uint8).view(_VIEWS[kind]).reshape(shape))
