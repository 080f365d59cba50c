"""A tiny EAGLE-3 draft for the tiny llama in a file, and what it computes, in NumPy.

The definition follows the paper (arXiv 2503.01840) and its reference code: the hidden states that
enter three layers of the target become one by `fc`; a llama layer whose attention reads the
embedding of the next token and that hidden state, side by side, adds to the hidden state.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np

import tiny_llama
from ingot.gguf import GgmlType, GgufWriter, ValueType
from ingot.quant import encode

LAYERS = (1, 2, 3)  # of the target, which has four
TARGET_LAYERS = 4
EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True)
class TinyEagle:
    """The sizes of a draft, and what drafts may have or not."""

    width: int = tiny_llama.WIDTH
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 20
    feed_forward: int = 96
    layers: tuple[int, ...] = LAYERS
    tokens: int | None = 100  # it can guess; None: all of the target's
    embedding: bool = False  # of its own
    output: bool = True  # of its own
    adds_to_normed: bool = False
    target_norm: bool = False
    target_width: int = tiny_llama.WIDTH
    vocabulary: tuple[str, ...] = field(default_factory=lambda: tuple(tiny_llama.vocabulary()))

    def keys(self) -> dict[str, object]:
        """The metadata, without the architecture's name in front."""
        return {
            "block_count": 1,
            "context_length": 64,
            "embedding_length": self.width,
            "feed_forward_length": self.feed_forward,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_size,
            "attention.value_length": self.head_size,
            "attention.layer_norm_rms_epsilon": EPSILON,
            "rope.dimension_count": self.head_size,
            "rope.freq_base": 5000.0,
            "vocab_size": len(self.vocabulary),
            "target_hidden_size": self.target_width,
            "norm_before_residual": self.adds_to_normed,
            "norm_before_fc": self.target_norm,
        }

    def tensors(self) -> dict[str, Any]:
        """Random weights; which tokens it can guess is random, too."""
        random, width = np.random.default_rng(11), self.width
        rows, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        every = len(self.vocabulary)
        shapes = {
            "fc.weight": (width, len(self.layers) * self.target_width),
            "output_norm.weight": (width,),
            "blk.0.attn_norm.weight": (width,),
            "blk.0.attn_norm_2.weight": (width,),
            "blk.0.attn_q.weight": (rows, 2 * width),
            "blk.0.attn_k.weight": (keys, 2 * width),
            "blk.0.attn_v.weight": (keys, 2 * width),
            "blk.0.attn_output.weight": (width, rows),
            "blk.0.ffn_norm.weight": (width,),
            "blk.0.ffn_gate.weight": (self.feed_forward, width),
            "blk.0.ffn_up.weight": (self.feed_forward, width),
            "blk.0.ffn_down.weight": (width, self.feed_forward),
        }
        if self.output:
            shapes["output.weight"] = (self.tokens or every, width)
        if self.embedding:
            shapes["token_embd.weight"] = (every, width)
        if self.target_norm:
            shapes["enc.output_norm.weight"] = (len(self.layers) * self.target_width,)
        made: dict[str, Any] = {}
        for name, shape in shapes.items():
            values = random.normal(0, 0.2, shape).astype(np.float32)
            made[name] = np.abs(values) + 0.5 if len(shape) == 1 else values
        if self.tokens is not None:
            made["d2t"] = np.sort(random.permutation(every)[: self.tokens]).astype(np.int64)
        return made

    def write(
        self,
        path: Path,
        *,
        keys: Mapping[str, object] | None = None,
        tensors: Mapping[str, Any] | None = None,
        without: Collection[str] = (),
        type: GgmlType | None = None,
        layers_key: str = "target_layers",
    ) -> Path:
        """Write the draft; `keys` and `tensors` replace some, `without` leaves some of both out.

        `type`: that of the matrices.
        """
        writer = GgufWriter(path)
        writer.add("general.architecture", "eagle3")
        for key, value in (self.keys() | dict(keys or {})).items():
            if key not in without:
                writer.add(f"eagle3.{key}", value)
        if layers_key not in without:
            writer.add(f"eagle3.{layers_key}", list(self.layers), ValueType.INT32)
        writer.add("tokenizer.ggml.model", "gpt2")
        writer.add("tokenizer.ggml.tokens", list(self.vocabulary), ValueType.STRING)
        for name, values in (self.tensors() | dict(tensors or {})).items():
            if name in without:
                continue
            if type is not None and values.ndim == 2:
                writer.add_tensor(name, encode(values, type), type)
            else:
                writer.add_tensor(name, values)
        return writer.write()[0]


def write_target(path: Path, tensors: Mapping[str, Any] | None = None) -> Path:
    """A tiny llama with enough layers for the draft, in 32-bit floats; `tensors` replace some."""
    random = np.random.default_rng(3)
    floats = {
        name: random.normal(0, 0.2, shape).astype(np.float32)
        for name, shape in tiny_llama.shapes(TARGET_LAYERS).items()
        if len(shape) == 2
    }
    replaced = floats | dict(tensors or {})
    return tiny_llama.write_tiny_llama(path, layers=TARGET_LAYERS, tensors=replaced)


def read_tensors(path: Path) -> dict[str, Any]:
    """The weights of a file as the `gguf` package decodes them, in 64 bits."""
    return {
        tensor.name: tensor.data
        if tensor.data.dtype == np.int64
        else gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        for tensor in gguf.GGUFReader(path).tensors
    }


def rms(rows: Any, weight: Any) -> Any:
    """RMS norm."""
    return rows / np.sqrt((rows**2).mean(-1, keepdims=True) + EPSILON) * weight


def turned(rows: Any, base: float) -> Any:
    """RoPE of [positions, heads, size], pairs side by side."""
    pairs = rows.shape[-1] // 2
    angles = np.outer(np.arange(len(rows)), base ** (-np.arange(pairs) / pairs))[:, None]
    even, odd, cos, sin = rows[..., 0::2], rows[..., 1::2], np.cos(angles), np.sin(angles)
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(rows.shape)


def layer(
    weights: Mapping[str, Any], name: str, seen: Any, stream: Any, heads: int, base: float
) -> Any:
    """A llama layer whose attention reads `seen` and adds to the stream."""
    query, key, value = (seen @ weights[f"{name}.attn_{part}.weight"].T for part in "qkv")
    size = query.shape[1] // heads
    query, key, value = (rows.reshape(len(seen), -1, size) for rows in (query, key, value))
    each = heads // key.shape[1]
    query, key = turned(query, base), np.repeat(turned(key, base), each, axis=1)
    scores = np.einsum("qhd,khd->hqk", query, key) / size**0.5
    scores = np.where(np.tri(len(seen), dtype=bool), scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    mixed = np.einsum("hqk,khd->qhd", scores, np.repeat(value, each, axis=1))
    stream = stream + mixed.reshape(len(seen), -1) @ weights[f"{name}.attn_output.weight"].T
    normed = rms(stream, weights[f"{name}.ffn_norm.weight"])
    gate = normed @ weights[f"{name}.ffn_gate.weight"].T
    up = gate / (1 + np.exp(-gate)) * (normed @ weights[f"{name}.ffn_up.weight"].T)
    return stream + up @ weights[f"{name}.ffn_down.weight"].T


def target_streams(weights: Mapping[str, Any], ids: list[int]) -> list[Any]:
    """The residual stream of the tiny llama before each layer and after the last one."""
    streams = [weights["token_embd.weight"][ids]]
    for number in range(TARGET_LAYERS):
        seen = rms(streams[-1], weights[f"blk.{number}.attn_norm.weight"])
        streams.append(
            layer(weights, f"blk.{number}", seen, streams[-1], tiny_llama.HEADS, 10000.0)
        )
    return streams


@dataclass(frozen=True)
class Definition:
    """What a draft computes, by its definition."""

    eagle: TinyEagle
    own: Mapping[str, Any]  # weights of the draft
    target: Mapping[str, Any]

    def hidden_states(self, ids: list[int]) -> Any:
        """What the draft makes of the target's hidden states."""
        streams = target_streams(self.target, ids)
        joined = np.concatenate([streams[number] for number in self.eagle.layers], axis=1)
        if self.eagle.target_norm:
            joined = rms(joined, self.own["enc.output_norm.weight"])
        return joined @ self.own["fc.weight"].T

    def forward(self, ids: list[int], hidden: Any) -> tuple[Any, Any]:
        """Hidden states and logits of tokens, each with the hidden state before it."""
        table = self.own.get("token_embd.weight", self.target["token_embd.weight"])
        normed = rms(hidden, self.own["blk.0.attn_norm_2.weight"])
        seen = np.concatenate([rms(table[ids], self.own["blk.0.attn_norm.weight"]), normed], axis=1)
        stream = normed if self.eagle.adds_to_normed else hidden
        after = layer(self.own, "blk.0", seen, stream, self.eagle.heads, 5000.0)
        output = self.own.get("output.weight", self.target["token_embd.weight"])
        return after, rms(after, self.own["output_norm.weight"]) @ output.T

    def guess(self, ids: list[int], count: int) -> list[int]:
        """The likeliest tokens after some, one after the other."""
        hidden, tokens, found = self.hidden_states(ids)[:-1], ids[1:], []
        for _ in range(count):
            after, logits = self.forward(tokens, hidden)
            best = int(logits[-1].argmax())
            found.append(int(self.own["d2t"][best]) if "d2t" in self.own else best)
            hidden, tokens = np.concatenate([hidden, after[-1:]]), [*tokens, found[-1]]
        return found
