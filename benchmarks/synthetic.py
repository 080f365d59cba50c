"""Write a model file with a real shape and random weights, for timing.

    python benchmarks/synthetic.py qwen2-1.5b Q4_K_M /tmp/qwen2.gguf

Speed depends on shapes and formats, not on the values of weights. One random matrix per format is
quantized and cut up for all tensors, so a file of gigabytes takes seconds. The vocabulary is made
up, and the generated text is noise.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.gguf import GgmlType, GgufWriter
from ingot.quant import encode
from synthetic_recent import RECENT, Model

_SAMPLE_BLOCKS = 16384  # of 256 weights
# Any bytes are weights of these types, with a half float first that scales a block.
_WITHOUT_ENCODER = {
    GgmlType.IQ1_S,
    GgmlType.IQ2_XXS,
    GgmlType.IQ2_XS,
    GgmlType.IQ2_S,
    GgmlType.IQ3_XXS,
    GgmlType.IQ3_S,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of an architecture."""

    architecture: str
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int
    tied: bool
    rotary: int = 0  # elements of a head that turn; 0: all
    head_size: int = 0  # 0: the width divided by the heads
    experts: int = 0  # of a layer, each as wide as feed_forward says
    used: int = 0  # by a token
    window: int = 0  # of every other layer

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.head_size or self.width // self.heads


# Models with experts, with fewer layers than the real ones (32, 48 and 24), to stay below 6 GB.
MIXTRAL = Shape("llama", 6, 4096, 14336, 32, 8, 32000, 32768, tied=False, experts=8, used=2)
QWEN3_MOE = Shape(
    "qwen3moe", 12, 2048, 768, 32, 4, 151936, 32768, tied=False, head_size=128, experts=128, used=8
)
GPT_OSS = Shape(
    "gpt-oss",
    10,
    2880,
    2880,
    64,
    8,
    201088,
    131072,
    tied=False,
    head_size=64,
    experts=32,
    used=4,
    window=128,
)
SHAPES = {
    "qwen2-1.5b": Shape("qwen2", 28, 1536, 8960, 12, 2, 151936, 32768, tied=True),
    "phi2-2.7b": Shape("phi2", 32, 2560, 10240, 32, 32, 51200, 4096, tied=False, rotary=32),
    "llama3-8b": Shape("llama", 32, 4096, 14336, 32, 8, 128256, 8192, tied=False),
    "mixtral-8x7b-6-layers": MIXTRAL,
    "qwen3-30b-a3b-12-layers": QWEN3_MOE,
    "gpt-oss-20b-10-layers": GPT_OSS,
    "qwen3-30b-a3b": replace(QWEN3_MOE, layers=48),
    "gpt-oss-20b": replace(GPT_OSS, layers=24),
}


def tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a model's tensors."""
    width, kv = shape.width, shape.head * shape.kv_heads
    queries = shape.head * shape.heads
    phi = shape.architecture == "phi2"
    yield "token_embd.weight", (shape.vocabulary, width)
    for layer in range(shape.layers):
        names: list[tuple[str, tuple[int, ...]]] = [
            ("attn_norm.weight", (width,)),
            ("attn_q.weight", (queries, width)),
            ("attn_k.weight", (kv, width)),
            ("attn_v.weight", (kv, width)),
            ("attn_output.weight", (width, queries)),
        ]
        if not shape.experts:
            names += [
                ("ffn_up.weight", (shape.feed_forward, width)),
                ("ffn_down.weight", (width, shape.feed_forward)),
            ]
        if shape.architecture in {"phi2", "qwen2", "gpt-oss"}:
            names += [("attn_q.bias", (queries,)), ("attn_k.bias", (kv,)), ("attn_v.bias", (kv,))]
        if shape.experts:
            names += expert_tensors(shape)
        elif phi:
            names += [
                ("attn_norm.bias", (width,)),
                ("attn_output.bias", (width,)),
                ("ffn_up.bias", (shape.feed_forward,)),
                ("ffn_down.bias", (width,)),
            ]
        else:
            names += [
                ("ffn_norm.weight", (width,)),
                ("ffn_gate.weight", (shape.feed_forward, width)),
            ]
        for name, size in names:
            yield f"blk.{layer}.{name}", size
    yield "output_norm.weight", (width,)
    if phi:
        yield "output_norm.bias", (width,)
        yield "output.bias", (shape.vocabulary,)
    if not shape.tied:
        yield "output.weight", (shape.vocabulary, width)


def expert_tensors(shape: Shape) -> list[tuple[str, tuple[int, ...]]]:
    """Those of a layer that has experts."""
    width, inner, experts = shape.width, shape.feed_forward, shape.experts
    names: list[tuple[str, tuple[int, ...]]] = [
        ("ffn_gate_inp.weight", (experts, width)),
        ("ffn_gate_exps.weight", (experts, inner, width)),
        ("ffn_up_exps.weight", (experts, inner, width)),
        ("ffn_down_exps.weight", (experts, width, inner)),
    ]
    match shape.architecture:
        case "gpt-oss":
            names += [
                ("post_attention_norm.weight", (width,)),
                ("attn_sinks.weight", (shape.heads,)),
                ("attn_output.bias", (width,)),
                ("ffn_gate_inp.bias", (experts,)),
                ("ffn_gate_exps.bias", (experts, inner)),
                ("ffn_up_exps.bias", (experts, inner)),
                ("ffn_down_exps.bias", (experts, width)),
            ]
        case "qwen3moe":
            names += [
                ("ffn_norm.weight", (width,)),
                ("attn_q_norm.weight", (shape.head,)),
                ("attn_k_norm.weight", (shape.head,)),
            ]
        case _:
            names.append(("ffn_norm.weight", (width,)))
    return names


def type_of(name: str, size: tuple[int, ...], mix: str, layers: int) -> GgmlType:
    """The format of a tensor in a mix: one for all matrices, Q4_K_M's two, or MXFP4 for experts
    and Q8_0 for the rest."""
    if len(size) == 1 or name.endswith((".bias", "norm.weight")) or "ffn_gate_inp" in name:
        return GgmlType.F32
    if size[-1] % GgmlType.Q8_0.block_size:  # a convolution's taps
        return GgmlType.F32
    if mix == "MXFP4":
        return GgmlType.MXFP4 if "_exps" in name else GgmlType.Q8_0
    if size[-1] % GgmlType.Q4_K.block_size:
        return GgmlType.Q8_0
    if mix != "Q4_K_M":
        return GgmlType[mix]
    if name in {"token_embd.weight", "output.weight"}:
        return GgmlType.Q6_K
    if name.endswith(("attn_v.weight", "ffn_down.weight", "ffn_down_exps.weight")):
        layer = int(name.split(".")[1])
        edge = layer < layers // 8 or layer >= 7 * layers // 8
        if edge or (layer - layers // 8) % 3 == 2:
            return GgmlType.Q6_K
    return GgmlType.Q4_K


class Weights:
    """Encoded random weights, handed out in any amount."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._samples: dict[GgmlType, NDArray[np.uint8]] = {}

    def scores(self, size: tuple[int, ...]) -> NDArray[np.float32]:
        """A matrix that scores experts: not zero, or all tokens would choose the same."""
        return self._random.standard_normal(size, np.float32) * np.float32(0.02)

    def _sample(self, kind: GgmlType) -> NDArray[np.uint8]:
        if kind in _WITHOUT_ENCODER:
            shape = (_SAMPLE_BLOCKS, kind.block_bytes)
            blocks = self._random.integers(0, 256, shape, dtype=np.uint8)
            blocks[:, :2] = np.array([0.002], np.float16).view(np.uint8)
            return blocks
        values = self._random.standard_normal(_SAMPLE_BLOCKS * 256, np.float32) * 0.02
        return encode(values, kind).reshape(-1, kind.block_bytes)

    def blocks(self, kind: GgmlType, size: tuple[int, ...]) -> NDArray[np.uint8]:
        """A tensor's blocks."""
        if kind not in self._samples:
            self._samples[kind] = self._sample(kind)
        sample = self._samples[kind]
        count = prod(size) // kind.block_size
        start = int(self._random.integers(len(sample)))
        turned = np.concatenate([sample[start:], sample[:start]])
        picked = np.resize(turned, (count, kind.block_bytes))
        return picked.reshape(*size[:-1], -1)


def model_of(shape: Shape) -> Model:
    """The keys and tensors of a shape."""
    keys: dict[str, int | float | bool | list[int]] = {
        "block_count": shape.layers,
        "context_length": shape.context,
        "embedding_length": shape.width,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head,
        "attention.value_length": shape.head,
        "rope.dimension_count": shape.rotary or shape.head,
        "rope.freq_base": 10000.0,
    }
    if shape.experts:
        keys["expert_count"] = shape.experts
        keys["expert_used_count"] = shape.used
        keys["expert_feed_forward_length"] = shape.feed_forward
    if shape.window:
        keys["attention.sliding_window"] = shape.window
    epsilon = "layer_norm_epsilon" if shape.architecture == "phi2" else "layer_norm_rms_epsilon"
    keys[f"attention.{epsilon}"] = 1e-6
    return Model(shape.architecture, shape.layers, shape.vocabulary, keys, tuple(tensors(shape)))


MODELS: dict[str, Model] = {**{name: model_of(s) for name, s in SHAPES.items()}, **RECENT}


def describe(writer: GgufWriter, model: Model) -> None:
    """Add the keys of a network."""
    writer.add("general.architecture", model.architecture)
    for key, value in model.keys.items():
        writer.add(f"{model.architecture}.{key}", value)


def write(name: str, mix: str, path: Path, seed: int = 0) -> None:
    """Write the file."""
    model = MODELS[name]
    writer = GgufWriter(path)
    describe(writer, model)
    writer.add("general.name", f"synthetic {name} {mix}")
    writer.add("tokenizer.ggml.model", "gpt2")
    writer.add("tokenizer.ggml.pre", "gpt-2")
    writer.add("tokenizer.ggml.tokens", [f"<{index}>" for index in range(model.vocabulary)])
    writer.add("tokenizer.ggml.token_type", np.ones(model.vocabulary, np.int32))
    writer.add("tokenizer.ggml.merges", ["< 0"])
    writer.add("tokenizer.ggml.bos_token_id", 0)
    writer.add("tokenizer.ggml.eos_token_id", 1)
    weights = Weights(seed)
    for tensor, size in model.tensors:
        kind = type_of(tensor, size, mix, model.layers)
        if tensor.endswith("ffn_gate_inp.weight"):
            writer.add_tensor(tensor, weights.scores(size))
        elif kind is GgmlType.F32:
            fill = 1.0 if tensor.endswith("norm.weight") else -1.0 if "ssm_a" in tensor else 0.0
            writer.add_tensor(tensor, np.full(size, fill, np.float32))
        else:
            writer.add_lazy_tensor(tensor, kind, size, partial(weights.blocks, kind, size))
    writer.write()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=MODELS)
    parser.add_argument(
        "mix",
        help="Q4_K_M, MXFP4 (experts, the rest Q8_0), or one format for all matrices (Q8_0, ...)",
    )
    parser.add_argument("path", type=Path)
    options = parser.parse_args()
    write(options.shape, options.mix, options.path)
    print(f"{options.path}: {options.path.stat().st_size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
