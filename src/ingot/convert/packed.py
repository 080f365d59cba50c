"""Checkpoints that are already quantized: FP8, MXFP4, AWQ and GPTQ.

In: the stored tensors of a checkpoint and its `quantization_config`. Out: the same tensors by the
names that they have in an unquantized checkpoint, as `Matrix`. The integers and scales of a weight
become one matrix of float32 values, which are exactly what the quantized model computes with.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Floats
from ingot.convert.matrices import Matrix, PlainMatrix, RowNumbers, as_floats
from ingot.convert.safetensors import StoredTensor, as_array
from ingot.errors import ConversionError

_AWQ_ORDER = np.array([0, 4, 1, 5, 2, 6, 3, 7])  # where in a word the column of each number lies
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_FP4 = np.concatenate([_E2M1, -_E2M1])


class ScaledMatrix:
    """FP8 weights with a scale for the whole tensor, for each row, or for each block."""

    def __init__(self, weight: StoredTensor, scale: StoredTensor) -> None:
        self._weight = PlainMatrix(weight)
        self.shape = self._weight.shape
        self._scale = as_floats(as_array(scale), scale.type)
        rows, columns = self.shape[-2:]
        if self._scale.size == 1:
            self._block = (rows, columns)
            self._scale = self._scale.reshape(1, 1)
        elif self._scale.ndim == 2 and len(self.shape) == 2:
            counts = self._scale.shape
            self._block = (_block_size(rows, counts[0]), _block_size(columns, counts[1]))
        else:
            raise ConversionError(
                f"{scale.name}: scales of shape {scale.shape} for weights of shape {weight.shape} "
                "are not supported"
            )

    def read(self, rows: RowNumbers) -> Floats:
        """Some rows, scaled."""
        height, width = self._block
        scales = self._scale[rows // height].repeat(width, axis=1)[:, : self.shape[-1]]
        scaled: Floats = self._weight.read(rows) * scales
        return scaled

    def release(self) -> None:
        """Give back the memory of what was read."""
        self._weight.release()


def _block_size(size: int, blocks: int) -> int:
    """The power of two (or the whole) that divides a size into so many blocks."""
    if blocks == 1:
        return size
    if blocks == size:
        return 1
    for power in range(1, 16):
        if -(-size // (1 << power)) == blocks:
            return 1 << power
    raise ConversionError(f"{blocks} scales for {size} weights are not blocks of one size")


class Mxfp4Matrix:
    """Blocks of 32 four-bit floats with a power of two as their scale."""

    def __init__(self, blocks: StoredTensor, scales: StoredTensor) -> None:
        if blocks.type != "U8" or blocks.shape != (*scales.shape, 16):
            raise ConversionError(f"{blocks.name} and {scales.name} do not belong together")
        *leading, groups, _ = blocks.shape
        self.shape = (*leading, 32 * groups)
        self._blocks, self._scales = blocks, scales

    def read(self, rows: RowNumbers) -> Floats:
        """Some rows as float32."""
        groups = self.shape[-1] // 32
        codes = as_array(self._blocks).reshape(-1, groups, 16)[rows]
        exponents = as_array(self._scales).reshape(-1, groups)[rows].astype(np.int32) - 127
        pairs = np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(rows), groups, 32)
        values: Floats = np.ldexp(_FP4[pairs], exponents[..., None])
        return values.reshape(len(rows), -1)

    def release(self) -> None:
        """Give back the memory of what was read."""
        self._blocks.release()


class GroupedMatrix:
    """AWQ and GPTQ: integers of 2, 4 or 8 bits; a scale and a zero point per group of inputs."""

    def __init__(
        self, parts: Mapping[str, StoredTensor], *, bits: int, awq: bool, zero_offset: int
    ) -> None:
        self._stored = parts["qweight"]
        self._weights, self._zeros = as_array(parts["qweight"]), as_array(parts["qzeros"])
        self._scales = as_array(parts["scales"])
        self._scale_type = parts["scales"].type
        self._bits, self._awq, self._zero_offset = bits, awq, zero_offset
        per_word = 32 // bits
        groups, outputs = self._scales.shape
        inputs = self._weights.shape[0] * (1 if awq else per_word)
        columns = outputs // per_word if awq else outputs
        if self._weights.shape[1] != columns or self._zeros.shape != (groups, outputs // per_word):
            raise ConversionError(f"{parts['qweight'].name}: the shapes of its parts do not fit")
        self._group = np.arange(inputs) // -(-inputs // groups)
        if "g_idx" in parts:
            self._group = as_array(parts["g_idx"]).astype(np.int64)
        if self._group.shape != (inputs,) or self._group.min() < 0 or self._group.max() >= groups:
            raise ConversionError(f"{parts['qweight'].name}: inputs of unknown groups")
        self.shape = (outputs, inputs)

    def read(self, rows: RowNumbers) -> Floats:
        """Some outputs, with all their inputs."""
        zeros = self._columns(self._zeros, rows) + self._zero_offset
        if self._awq:
            numbers = self._columns(self._weights, rows)
        else:
            words = self._weights[:, rows].view(np.uint32)
            numbers = self._unpacked(words).swapaxes(1, 2).reshape(-1, len(rows))
        scales = as_floats(self._scales[:, rows], self._scale_type)
        values = (numbers - zeros[self._group]).astype(np.float32) * scales[self._group]
        return np.ascontiguousarray(values.T)

    def release(self) -> None:
        """Give back the memory of what was read."""
        self._stored.release()

    def _columns(self, words: NDArray[Any], columns: RowNumbers) -> NDArray[np.int32]:
        """Columns of an array that is packed along its rows."""
        word, place = np.divmod(columns, 32 // self._bits)
        if self._awq:
            place = _AWQ_ORDER[place]
        shifts = (place * self._bits).astype(np.uint32)
        mask = np.uint32((1 << self._bits) - 1)
        return (words[:, word].view(np.uint32) >> shifts & mask).astype(np.int32)

    def _unpacked(self, words: NDArray[np.uint32]) -> NDArray[np.int32]:
        """[words, columns] to [words, columns, numbers of a word]."""
        shifts = np.arange(0, 32, self._bits, dtype=np.uint32)
        mask = np.uint32((1 << self._bits) - 1)
        return (words[..., None] >> shifts & mask).astype(np.int32)


def unpacked(
    tensors: Mapping[str, StoredTensor], config: Mapping[str, Any]
) -> dict[str, Matrix | StoredTensor]:
    """The tensors by their unquantized names: packed ones as a matrix, others as they are."""
    quantization = config.get("quantization_config") or {}
    method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
    if method in ("awq", "gptq"):
        return _grouped(tensors, quantization)
    if method not in (None, "fp8", "mxfp4", "compressed-tensors"):
        raise ConversionError(
            f"checkpoints quantized with {method!r} are not supported; fp8, mxfp4, awq and gptq "
            "are, and so are unquantized ones"
        )
    found: dict[str, Matrix | StoredTensor] = {}
    for name, tensor in tensors.items():
        stem = name.removesuffix("_blocks")
        if tensor.type.startswith("F8_E4M3") or tensor.type.startswith("F8_E5M2"):
            scale = _first(tensors, f"{name}_scale_inv", f"{name}_scale")
            found[name] = tensor if scale is None else ScaledMatrix(tensor, scale)
        elif stem != name and f"{stem}_scales" in tensors:
            found[name] = Mxfp4Matrix(tensor, tensors[f"{stem}_scales"])
        elif not _belongs(name, tensors):
            found[name] = tensor
    return found


def _belongs(name: str, tensors: Mapping[str, StoredTensor]) -> bool:
    """Whether a tensor is a part of another one's quantization."""
    for ending in ("_scale_inv", "_scale"):
        if name.endswith(ending) and name.removesuffix(ending) in tensors:
            return True
    if name.endswith("_scales") and f"{name.removesuffix('_scales')}_blocks" in tensors:
        return True
    return name.endswith((".input_scale", ".activation_scale"))


def _first(tensors: Mapping[str, StoredTensor], *names: str) -> StoredTensor | None:
    return next((tensors[name] for name in names if name in tensors), None)


def _grouped(
    tensors: Mapping[str, StoredTensor], quantization: Mapping[str, Any]
) -> dict[str, Matrix | StoredTensor]:
    awq = quantization["quant_method"] == "awq"
    bits = quantization.get("bits", quantization.get("w_bit", 4))
    if bits not in ((4,) if awq else (2, 4, 8)):
        raise ConversionError(f"quantization_config: {bits!r} bits are not supported")
    if awq and str(quantization.get("version", "gemm")).lower() != "gemm":
        raise ConversionError("of AWQ, only the version 'gemm' is supported")
    zero_offset = 0 if awq or quantization.get("checkpoint_format") == "gptq_v2" else 1
    endings = ("qweight", "qzeros", "scales", "g_idx")
    found: dict[str, Matrix | StoredTensor] = {}
    for name, tensor in tensors.items():
        stem, _, ending = name.rpartition(".")
        if ending not in endings or f"{stem}.qweight" not in tensors:
            found[name] = tensor
        elif ending == "qweight":
            parts = {end: tensors[f"{stem}.{end}"] for end in endings if f"{stem}.{end}" in tensors}
            missing = {"qzeros", "scales"} - parts.keys()
            if missing or any(len(parts[end].shape) != 2 for end in endings[:3]):
                raise ConversionError(f"{name}: its {' and '.join(sorted(missing))} are missing")
            found[f"{stem}.weight"] = GroupedMatrix(
                parts, bits=bits, awq=awq, zero_offset=zero_offset
            )
    return found
