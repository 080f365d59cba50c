"""Checkpoints for tests: safetensors files and the JSON files beside them, written by hand."""

import json
from collections.abc import Mapping
from pathlib import Path
from struct import pack
from typing import Any

import numpy as np

from models.recipe import interleaved
from models.tiny_models import VOCABULARY, Fixture

TYPES = {"f4": "F32", "f2": "F16", "u1": "U8", "i4": "I32"}
CHARACTERS = [chr(code) for code in range(33, 33 + VOCABULARY)]
# A byte-level vocabulary of as many tokens as the tiny models have.
TOKENIZER: Mapping[str, Any] = {
    "model": {
        "type": "BPE",
        "vocab": {character: id for id, character in enumerate(CHARACTERS)},
        "merges": [],
    },
    "pre_tokenizer": {"type": "ByteLevel", "use_regex": True},
    "added_tokens": [],
}
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONFIG: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "vocab_size": VOCABULARY,
}


def bfloat16(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 values, which must be exact."""
    wide = np.ascontiguousarray(values, np.float32).view(np.uint32)
    assert not (wide & 0xFFFF).any()
    return (wide >> 16).astype(np.uint16)


def write_safetensors(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    types: Mapping[str, str] | None = None,
    *,
    align: int = 1,
    beyond: int = 0,
) -> None:
    """Write arrays; `types` names those whose type is not NumPy's.

    The data begin at a multiple of `align` bytes, or so many `beyond`.
    """
    header, data = {}, b""
    for name, values in tensors.items():
        kind = (types or {}).get(name) or TYPES[values.dtype.str[1:]]
        header[name] = {
            "dtype": kind,
            "shape": list(values.shape),
            "data_offsets": [len(data), len(data) + values.nbytes],
        }
        data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * ((-len(text) - 8) % align + beyond)
    path.write_bytes(pack("<Q", len(text)) + text + data)


def llama_tensors() -> dict[str, np.ndarray]:
    """The tensors of the tiny Llama as `transformers` stores them."""
    found = {}
    heads = {"attn_q": 6, "attn_k": 2}
    for name, values in Fixture.load("llama").tensors().items():
        *layer, stem, ending = name.split(".")
        rows = interleaved(values, heads[stem]) if stem in heads else values
        prefix = f"model.layers.{layer[1]}." if layer else ""
        found[f"{prefix}{NAMES[stem]}.{ending}"] = np.ascontiguousarray(rows)
    return found


def write_llama(folder: Path, **config: Any) -> Path:
    """The tiny Llama as a checkpoint."""
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "model.safetensors", llama_tensors())
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return folder
