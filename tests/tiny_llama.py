"""A llama model of two layers with random weights and a byte-level vocabulary, in a file.

Small enough to be written and run in milliseconds; what it says makes no sense.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ingot.gguf import GgmlType, GgufWriter, ValueType
from ingot.quant import encode
from ingot.tokenizer import TokenType

WIDTH, LAYERS, HEADS, KV_HEADS, FEED_FORWARD, CONTEXT = 64, 2, 2, 1, 96, 256
CONTROLS = ("<|start|>", "<|end|>")
CHAT = (
    "{% for message in messages %}<|start|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>{% endif %}"
)


def vocabulary() -> list[str]:
    """GPT-2's letters for the bytes 0 to 255, and two control tokens."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)] + list(CONTROLS)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The numbers of a llama."""

    width: int = WIDTH
    layers: int = LAYERS
    heads: int = HEADS
    kv_heads: int = KV_HEADS
    feed_forward: int = FEED_FORWARD
    context: int = CONTEXT

    def metadata(self) -> dict[str, object]:
        """What a file says of them, without the architecture's name in front."""
        return {
            "block_count": self.layers,
            "context_length": self.context,
            "embedding_length": self.width,
            "feed_forward_length": self.feed_forward,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.layer_norm_rms_epsilon": 1e-5,
        }

    def shapes(self, tokens: int) -> dict[str, tuple[int, ...]]:
        """Every tensor, for a vocabulary of so many tokens."""
        width, keys = self.width, self.kv_heads * self.width // self.heads
        found: dict[str, tuple[int, ...]] = {"token_embd.weight": (tokens, width)}
        for layer in range(self.layers):
            found |= {
                f"blk.{layer}.{name}.weight": shape
                for name, shape in {
                    "attn_norm": (width,),
                    "attn_q": (width, width),
                    "attn_k": (keys, width),
                    "attn_v": (keys, width),
                    "attn_output": (width, width),
                    "ffn_norm": (width,),
                    "ffn_gate": (self.feed_forward, width),
                    "ffn_up": (self.feed_forward, width),
                    "ffn_down": (width, self.feed_forward),
                }.items()
            }
        return found | {"output_norm.weight": (width,)}


def shapes(layers: int = LAYERS) -> dict[str, tuple[int, ...]]:
    """Every tensor of the model."""
    return Sizes(layers=layers).shapes(len(vocabulary()))


def write_tiny_llama(
    path: Path,
    *,
    layers: int = LAYERS,
    template: str | None = CHAT,
    keys: Mapping[str, object] | None = None,
    without: Collection[str] = (),
    tensors: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Write the model; `keys` and `tensors` replace some, `without` leaves tensors out."""
    writer = GgufWriter(path)
    metadata: dict[str, object] = {
        "general.architecture": "llama",
        **{f"llama.{key}": value for key, value in Sizes(layers=layers).metadata().items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.eos_token_id": 257,
        "tokenizer.ggml.add_bos_token": True,
    }
    if template is not None:
        metadata["tokenizer.chat_template"] = template
    for key, value in (metadata | dict(keys or {})).items():
        writer.add(key, value)
    tokens = vocabulary()
    types = [int(TokenType.NORMAL)] * 256 + [int(TokenType.CONTROL)] * len(CONTROLS)
    writer.add("tokenizer.ggml.tokens", tokens, ValueType.STRING)
    writer.add("tokenizer.ggml.token_type", types, ValueType.INT32)
    writer.add("tokenizer.ggml.merges", ["a b"], ValueType.STRING)
    random = np.random.default_rng(7)
    for name, shape in shapes(layers).items():
        values = random.normal(0, 0.2, shape).astype(np.float32)
        if len(shape) == 1:
            values = np.abs(values) + 0.5
        if name in without:
            continue
        if tensors and name in tensors:
            writer.add_tensor(name, tensors[name])
        elif name.endswith(("attn_q.weight", "ffn_gate.weight")):
            writer.add_tensor(name, encode(values, GgmlType.Q8_0), GgmlType.Q8_0)
        else:
            writer.add_tensor(name, values)
    return writer.write()[0]
