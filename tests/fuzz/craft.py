"""GGUF files made field by field, so that any field can be replaced and found again.

Unlike `GgufWriter` it checks nothing. Every field has a label: the preamble's are `magic`,
`version`, `tensor_count` and `metadata_kv_count`; those of key `k` are `k.length`, `k.key`,
`k.value_type`, `k.array_type`, `k.array_length` and `k.value`; those of tensor `t` are
`t.length`, `t.name`, `t.n_dimensions`, `t.dimensions`, `t.type` and `t.offset`; last come
`padding` and `data`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import pack
from typing import Any, Self

from ingot.gguf import ValueType

_FORMATS = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "B",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}


def u32(value: int) -> bytes:
    return pack("<I", value)


def u64(value: int) -> bytes:
    return pack("<Q", value)


def encode(kind: ValueType, value: Any) -> bytes:
    if kind is ValueType.STRING:
        return u64(len(value)) + value
    return pack(f"<{_FORMATS[kind]}", value)


@dataclass
class Craft:
    """A file as a list of labelled fields."""

    version: int = 3
    alignment: int = 32  # of the data; add `general.alignment` to say so in the file
    entries: list[tuple[str, bytes]] = field(default_factory=list)
    tensors: list[tuple[str, bytes]] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0, 0])
    data: bytes = b""
    replaced: dict[str, bytes] = field(default_factory=dict)

    def key(self, key: str, kind: ValueType, value: Any) -> Self:
        self._name(self.entries, key, "key")
        self.entries.append((f"{key}.value_type", u32(kind)))
        self.entries.append((f"{key}.value", encode(kind, value)))
        self.counts[1] += 1
        return self

    def array(self, key: str, kind: ValueType, values: Sequence[Any]) -> Self:
        self._name(self.entries, key, "key")
        self.entries.append((f"{key}.value_type", u32(ValueType.ARRAY)))
        self.entries.append((f"{key}.array_type", u32(kind)))
        self.entries.append((f"{key}.array_length", u64(len(values))))
        self.entries.append((f"{key}.value", b"".join(encode(kind, v) for v in values)))
        self.counts[1] += 1
        return self

    def tensor(
        self, name: str, dimensions: Sequence[int], kind: int, data: bytes, gap: int = 0
    ) -> Self:
        """Add a tensor; its data follow the last one's, aligned, `gap` blocks further."""
        self.data += bytes(-len(self.data) % self.alignment + gap * self.alignment)
        self._name(self.tensors, name, "name")
        self.tensors.append((f"{name}.n_dimensions", u32(len(dimensions))))
        self.tensors.append((f"{name}.dimensions", b"".join(map(u64, dimensions))))
        self.tensors.append((f"{name}.type", u32(kind)))
        self.tensors.append((f"{name}.offset", u64(len(self.data))))
        self.data += data
        self.counts[0] += 1
        return self

    def replace(self, label: str, data: bytes) -> Self:
        """Put other bytes where a field was."""
        assert label in dict(self.fields()), label
        self.replaced[label] = data
        return self

    def fields(self) -> list[tuple[str, bytes]]:
        fields = [
            ("magic", b"GGUF"),
            ("version", u32(self.version)),
            ("tensor_count", u64(self.counts[0])),
            ("metadata_kv_count", u64(self.counts[1])),
            *self.entries,
            *self.tensors,
        ]
        fields = [(label, self.replaced.get(label, data)) for label, data in fields]
        size = sum(len(data) for _, data in fields)
        if self.data:
            fields.append(("padding", bytes(-size % self.alignment)))
            fields.append(("data", self.data))
        return fields

    def offset(self, label: str) -> int:
        """Where a field begins."""
        position = 0
        for name, data in self.fields():
            if name == label:
                return position
            position += len(data)
        raise KeyError(label)

    def bytes(self) -> bytes:
        return b"".join(data for _, data in self.fields())

    @staticmethod
    def _name(fields: list[tuple[str, bytes]], name: str, kind: str) -> None:
        fields.append((f"{name}.length", u64(len(name.encode()))))
        fields.append((f"{name}.{kind}", name.encode()))
