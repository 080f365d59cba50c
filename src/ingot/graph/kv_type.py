"""How keys and values are stored: the names that callers choose by, and the bytes they take.

Most are types of the GGUF format. FP8 is none: the row of a head is numbers of one byte (E4M3: four
bits of exponent, three of mantissa) and one half float that scales them all.
"""

from enum import StrEnum

from ingot.gguf import GgmlType


class KvType(StrEnum):
    """A storage of keys and values."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
    Q4_0 = "q4_0"
    FP8 = "fp8"

    @property
    def ggml(self) -> GgmlType | None:
        """The same as a type of tensors, if there is one."""
        return GgmlType.__members__.get(self.name)

    @property
    def block_size(self) -> int:
        """The size of a head is a multiple of it."""
        return self.ggml.block_size if self.ggml is not None else 1

    def row_bytes(self, size: int) -> int:
        """What a head of that size takes: its key, or its value."""
        if self.ggml is None:
            return size + 2
        return -(-size // self.ggml.block_size) * self.ggml.block_bytes
