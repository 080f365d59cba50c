"""LoRA adapters with random matrices for the tiny llama, as files of llama.cpp's form."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ingot.adapters import Adapter, open_adapter
from ingot.backends.reference import Reference
from ingot.gguf import GgufLoader, GgufWriter, ValueType
from ingot.models import build_graph
from tiny_llama import LAYERS, shapes, write_tiny_llama

LINEAR = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
EVERYTHING = (
    *(f"blk.{layer}.{name}.weight" for layer in range(LAYERS) for name in LINEAR),
    "token_embd.weight",
    "output.weight",
)


def pairs(
    names: Sequence[str], rank: int, seed: int, dtype: type = np.float32
) -> dict[str, np.ndarray]:
    """A and B of each name, under the names of an adapter file."""
    random = np.random.default_rng(seed)
    known = shapes() | {"output.weight": shapes()["token_embd.weight"]}
    found = {}
    for name in names:
        rows, columns = known[name]
        table = name == "token_embd.weight"
        down = (rows, rank) if table else (rank, columns)
        up = (columns if table else rows, rank)
        found[f"{name}.lora_a"] = random.normal(0, 0.3, down).astype(dtype)
        found[f"{name}.lora_b"] = random.normal(0, 0.3, up).astype(dtype)
    return found


def write_adapter(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    *,
    alpha: float | None = 8.0,
    keys: Mapping[str, object] | None = None,
) -> Path:
    """Write an adapter file; `keys` replace some, those that are None are left out."""
    writer = GgufWriter(path)
    metadata: dict[str, object] = {
        "general.architecture": "llama",
        "general.type": "adapter",
        "adapter.type": "lora",
    }
    for key, value in (metadata | dict(keys or {})).items():
        if value is not None:
            writer.add(key, value)
    if alpha is not None:
        writer.add("adapter.lora.alpha", alpha, ValueType.FLOAT32)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    return writer.write()[0]


def write_random_adapter(
    path: Path,
    *,
    names: Sequence[str] = EVERYTHING,
    rank: int = 4,
    seed: int = 0,
    dtype: type = np.float32,
) -> Path:
    """An adapter of some matrices."""
    return write_adapter(path, pairs(names, rank, seed, dtype))


class TinyModel:
    """The tiny llama, open, and adapters of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = GgufLoader(write_tiny_llama(folder / "base.gguf"))
        self.graph = build_graph(self.file)

    def adapter(self, **options: object) -> Adapter:
        """A random adapter; the options are those of `write_random_adapter`."""
        path = self.folder / f"{len(list(self.folder.iterdir()))}.gguf"
        return open_adapter(write_random_adapter(path, **options), self.file, self.graph)  # type: ignore[arg-type]

    def reference(
        self, ids: Sequence[int], adapter: Adapter | None, scale: float = 1.0
    ) -> np.ndarray:
        """Logits as their definition has them."""
        twin = Reference(self.graph, self.file, np.float64)
        return twin.forward(ids, adapter=adapter, adapter_scale=scale)


def assert_close(found: np.ndarray, wanted: np.ndarray, part: float) -> None:
    """Equal up to a part of the largest logit."""
    np.testing.assert_allclose(found, wanted, atol=part * np.abs(wanted).max())
