"""Tiny models: what a fixture holds, and the GGUF file made from it.

A fixture (fixtures/<name>.npz) says what `transformers` computed for a model of random
weights: metadata and shapes as a real file of the architecture has them, token ids, the
logits after each of them. The weights themselves are not stored: `stable_values` makes them
from a tensor's name, the same on every machine.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ingot.gguf import GgmlType, GgufWriter, ValueType
from ingot.quant import encode

Floats = NDArray[np.float32]
Metadata = Mapping[str, int | float | str | list[str] | list[int] | list[float]]
LISTS = {
    bool: ValueType.BOOL,
    str: ValueType.STRING,
    int: ValueType.INT32,
    float: ValueType.FLOAT32,
}
SHARED_KEYS = ("tokenizer.", "xielu.")  # keys without the architecture's name in front
# Tensors that hold something for each layer, and along which axis.
OF_LAYERS = {"per_layer_token_embd.weight": 1, "per_layer_model_proj.weight": 0}
type_of = type
LAYER = re.compile(r"\bblk\.(\d+)\.")
VOCABULARY = 61
FOLDER = Path(__file__).parent / "fixtures"
PROMPT = 150  # tokens, the first ones, that the encoder before a decoder reads
PAIR_LENGTHS = (9, 33, 70)  # a ranker's pairs are the first so many of the token ids


@cache
def stable_values(name: str, shape: tuple[int, ...]) -> Floats:
    """The weights of a tensor: even numbers around 0, around 1 for a norm's, below 0 for decays.

    Matrices keep the size of what they multiply. PCG64's raw output is the same in every
    version of NumPy, which is not promised of its distributions.
    """
    raw = np.random.PCG64(crc32(name.encode())).random_raw(int(np.prod(shape)))
    even = ((raw >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - 1).reshape(shape)
    middle, size = 0, (3 / shape[-1]) ** 0.5
    if name.endswith(("norm.weight", "scale.weight", ".scale")):
        middle, size = 1, 0.3
    elif name.endswith("ssm_a"):  # what decays
        middle, size = -1, -0.9
    elif len(shape) == 1:
        size = 0.3
    values = np.float32(middle) + np.float32(size) * even
    values.flags.writeable = False  # whoever asks gets the same
    return values


def pair_types(length: int) -> list[int]:
    """A query of a third of the tokens, and a document."""
    return [int(at >= length // 3) for at in range(length)]


@dataclass(frozen=True)
class Fixture:
    """A tiny model and what it should compute."""

    architecture: str
    metadata: Metadata  # keys without the architecture's name in front
    shapes: Mapping[str, tuple[int, ...]]  # of the tensors, by their names in the file
    constants: Mapping[str, Floats]  # tensors that are not random
    token_ids: list[int]
    # [tokens, vocabulary], [tokens, width] of an encoder, [pairs, 1] of a ranker; of an
    # encoder-decoder those of the tokens after the prompt.
    logits: Floats

    def save(self, name: str) -> None:
        """Write fixtures/<name>.npz."""
        described = {
            "architecture": self.architecture,
            "metadata": dict(self.metadata),
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "token_ids": self.token_ids,
        }
        constants = {f"constant:{name}": values for name, values in self.constants.items()}
        np.savez_compressed(
            FOLDER / f"{name}.npz",
            allow_pickle=False,
            described=np.array(json.dumps(described)),
            logits=self.logits,
            **constants,
        )

    @classmethod
    @cache
    def load(cls, name: str) -> "Fixture":
        """Read fixtures/<name>.npz."""
        with np.load(FOLDER / f"{name}.npz") as stored:
            described = json.loads(str(stored["described"]))
            return cls(
                architecture=described["architecture"],
                metadata=described["metadata"],
                shapes={name: tuple(shape) for name, shape in described["shapes"].items()},
                constants={
                    key.removeprefix("constant:"): stored[key]
                    for key in stored
                    if key.startswith("constant:")
                },
                token_ids=described["token_ids"],
                logits=stored["logits"],
            )

    def tensors(self) -> dict[str, Floats]:
        """Every tensor of the file."""
        random = {name: stable_values(name, shape) for name, shape in self.shapes.items()}
        return random | dict(self.constants)

    def first_layers(self, count: int) -> "Fixture":
        """The network with fewer layers; what it should compute is not known.

        Lists that are as long as there are layers are cut, and so are tensors that hold something
        for each of them. No layer shares the keys and values of another.
        """
        layers = self.metadata["block_count"]
        cut: dict[str, Any] = {
            key: value[:count]
            for key, value in self.metadata.items()
            if isinstance(value, list) and len(value) == layers
        }
        if "attention.shared_kv_layers" in self.metadata:
            cut["attention.shared_kv_layers"] = 0
        if "decoder_block_count" in self.metadata:
            cut["decoder_block_count"] = count
        numbers = {name: LAYER.search(name) for name in self.shapes}
        shapes = {
            name: self.shapes[name]
            for name, found in numbers.items()
            if found is None or int(found[1]) < count
        }
        for name, axis in OF_LAYERS.items():
            if name in shapes:
                size = list(shapes[name])
                size[axis] = size[axis] // layers * count
                shapes[name] = tuple(size)
        return replace(
            self,
            metadata={**self.metadata, **cut, "block_count": count},
            shapes=shapes,
            logits=self.logits[:0],
        )

    def write(self, path: Path, type: GgmlType = GgmlType.F32) -> Path:
        """Write the model; matrices whose rows are whole blocks get the type.

        Those that score experts stay as they are, as in real files.
        """
        writer = GgufWriter(path)
        writer.add("general.architecture", self.architecture)
        for key, value in self.metadata.items():
            shared = key.startswith(SHARED_KEYS)
            kind = LISTS[type_of(value[0])] if isinstance(value, list) else None
            writer.add(key if shared else f"{self.architecture}.{key}", value, kind)
        writer.add("tokenizer.ggml.model", "llama")
        writer.add("tokenizer.ggml.tokens", [f"t{i}" for i in range(VOCABULARY)], ValueType.STRING)
        writer.add("tokenizer.ggml.scores", [0.0] * VOCABULARY, ValueType.FLOAT32)
        writer.add("tokenizer.ggml.token_type", [1] * VOCABULARY, ValueType.INT32)
        for name, values in self.tensors().items():
            matrix = values.ndim > 1 and name.endswith(".weight") and "_inp" not in name
            quantized = matrix and values.shape[-1] % type.block_size == 0
            kind = type if quantized else GgmlType.F32
            writer.add_tensor(name, encode(values, kind), kind, values.shape)
        writer.write()
        return path
