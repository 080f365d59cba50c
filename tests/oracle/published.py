"""Saved models as the repositories of classes that `transformers` does not have store them.

The recipes of these architectures borrow another class. `PUBLISHED` states the parts of names and
the settings that are called differently in the repositories, and what is stored as one tensor.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints import write_safetensors
from ingot.convert.safetensors import as_array, read_safetensors

Config = dict[str, Any]
_QUERY = "self_attn.q_proj"


@dataclass(frozen=True, kw_only=True)
class Published:
    """The form of a repository."""

    model: str  # its class
    names: Mapping[str, str] = field(default_factory=dict)  # parts of names
    settings: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # parts of names
    joined: str | None = None  # the name of query, key and value in one tensor
    by_head: bool = False  # for each key head: its queries, the key, the value
    change: Callable[[str, np.ndarray], np.ndarray] = lambda _, values: values
    configure: Callable[[Config], None] = lambda _: None


def _qwen_settings(config: Config) -> None:
    config["intermediate_size"] *= 2
    del config["num_key_value_heads"]


def _minicpm_settings(config: Config) -> None:
    config["scale_emb"] = config["embedding_multiplier"]
    config["scale_depth"] = config["residual_multiplier"] * config["num_hidden_layers"] ** 0.5
    config["dim_model_base"] = config["hidden_size"] / config["logits_scaling"]


def _nomic_experts(name: str, values: np.ndarray) -> np.ndarray:
    """Both matrices of an expert have its inner elements as rows."""
    if name.endswith("mlp.down"):
        values = values.swapaxes(1, 2)
    return values.reshape(-1, values.shape[-1]) if values.ndim == 3 else values


def _jina(**names: str) -> dict[str, str]:
    """Parts of names outside of attention; `output` is a part of its names, too."""
    return {"attention.output": "attention.made", **names, "attention.made": "attention.output"}


def _jina_settings(config: Config) -> None:
    config.update(feed_forward_type="geglu", position_embedding_type="alibi")


def _gate_last(name: str, values: np.ndarray) -> np.ndarray:
    """A gate after what it multiplies, as models for code have it."""
    both = name.endswith("intermediate.both.weight")
    return np.concatenate(np.split(values, 2)[::-1]) if both else values


def _pairs_side_by_side(name: str, values: np.ndarray) -> np.ndarray:
    """Elements that turn together are neighbours, in heads of 16 and in their norms."""
    turned = ("q_proj.weight", "k_proj.weight", "query_layernorm.weight", "key_layernorm.weight")
    if not name.endswith(turned):
        return values
    return values.reshape(-1, 2, 8, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _smallthinker_settings(config: Config) -> None:
    windows = [int(kind == "sliding_attention") for kind in config.pop("layer_types")]
    windows = [0] * len(windows) if all(windows) else windows
    config.update(
        sliding_window_layout=windows,
        sliding_window_size=config.pop("sliding_window"),
        rope_layout=windows if any(windows) else [1] * len(windows),
        moe_enable_early_router=True,
        moe_primary_router_apply_softmax=False,
    )
    for name in ("intermediate_size", "mlp_layer_types"):
        config.pop(name)


SMALLTHINKER = Published(
    model="SmallThinkerForCausalLM",
    names={
        "mlp.gate.": "block_sparse_moe.primary_router.",
        "mlp.experts.": "block_sparse_moe.experts.",
        ".gate_proj": ".gate", ".up_proj": ".up", ".down_proj": ".down",
    },
    settings={
        "num_experts": "moe_num_primary_experts",
        "num_experts_per_tok": "moe_num_active_primary_experts",
        "moe_intermediate_size": "moe_ffn_hidden_size",
    },
    left_out=("_norm.weight", "shared_experts", "e_score_correction_bias"),
    configure=_smallthinker_settings,
)  # fmt: skip
LAYER = "transformer.h."
PUBLISHED: dict[str, Published] = {
    "exaone": Published(
        model="ExaoneForCausalLM",
        names={
            "model.layers.": LAYER, "model.embed_tokens": "transformer.wte",
            "model.norm": "transformer.ln_f", "input_layernorm": "ln_1",
            "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.attention.out_proj",
            "self_attn": "attn.attention", "mlp.gate_proj": "mlp.c_fc_0",
            "mlp.up_proj": "mlp.c_fc_1", "mlp.down_proj": "mlp.c_proj",
        },
        settings={"num_hidden_layers": "num_layers", "rms_norm_eps": "layer_norm_epsilon"},
    ),
    "internlm2": Published(
        model="InternLM2ForCausalLM",
        names={
            "model.embed_tokens": "model.tok_embeddings", "lm_head": "output",
            "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
            "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
            "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3",
        },
        joined="attention.wqkv",
        by_head=True,
    ),
    "minicpm": Published(model="MiniCPMForCausalLM", configure=_minicpm_settings),
    "qwen": Published(
        model="QWenLMHeadModel",
        names={
            "model.layers.": LAYER, "model.embed_tokens": "transformer.wte",
            "model.norm": "transformer.ln_f", "input_layernorm": "ln_1",
            "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.c_proj",
            "mlp.gate_proj": "mlp.w2", "mlp.up_proj": "mlp.w1", "mlp.down_proj": "mlp.c_proj",
        },
        settings={"rms_norm_eps": "layer_norm_epsilon", "max_position_embeddings": "seq_length"},
        joined="attn.c_attn",
        configure=_qwen_settings,
    ),
    "baichuan": Published(
        model="BaichuanForCausalLM",
        settings={"max_position_embeddings": "model_max_length"},
        joined="self_attn.W_pack",
        configure=lambda config: config.pop("rope_parameters"),
    ),
    "bailingmoe2": Published(
        model="BailingMoeV2ForCausalLM",
        names={
            "model.embed_tokens": "model.word_embeddings", "self_attn.o_proj": "attention.dense",
            "self_attn.q_norm": "attention.query_layernorm",
            "self_attn.k_norm": "attention.key_layernorm",
            "mlp.gate.e_score_correction_bias": "mlp.gate.expert_bias",
        },
        settings={"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"},
        joined="attention.query_key_value",
    ),
    "deepseek": Published(
        model="DeepseekForCausalLM",
        names={"mlp.shared_expert.": "mlp.shared_experts."},
        settings={"num_experts": "n_routed_experts"},
        left_out=("shared_expert_gate",),
        configure=lambda config: config.update(
            n_shared_experts=2, first_k_dense_replace=1, moe_layer_freq=1, scoring_func="softmax"
        ),
    ),
    "maincoder": Published(
        model="MaincoderForCausalLM",
        names={"query_layernorm": "q_norm", "key_layernorm": "k_norm"},
        change=_pairs_side_by_side,
    ),
    "plm": Published(
        model="PLMForCausalLM",
        left_out=("mlp.gate_proj",),
        configure=lambda config: [
            config.pop(name)
            for name in ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
        ],
    ),
    **dict.fromkeys(("smallthinker", "smallthinker-window", "smallthinker-wide"), SMALLTHINKER),
    "nomic-bert-moe": Published(
        model="NomicBertModel",
        names={
            "mixer.": "attn.", "mlp.gate.": "mlp.router.layer.", "mlp.up": "mlp.experts.mlp.w1",
            "mlp.down": "mlp.experts.mlp.w2",
        },
        settings={
            "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "intermediate_size": "n_inner",
            "num_attention_heads": "n_head", "max_position_embeddings": "n_positions",
            "layer_norm_eps": "layer_norm_epsilon",
        },
        change=_nomic_experts,
        configure=lambda config: config.update(num_experts=5, moe_top_k=2, moe_every_n_layers=2),
    ),
    "jina-bert-v2": Published(
        model="JinaBertForMaskedLM",
        names=_jina(**{
            "intermediate.both": "mlp.gated_layers", "output.dense": "mlp.wo",
            "output.LayerNorm": "mlp.layernorm",
        }),
        left_out=("position_embeddings",),
        configure=_jina_settings,
    ),
    "jina-bert-v2-code": Published(
        model="JinaBertForMaskedLM",
        names=_jina(**{
            "intermediate.both": "mlp.up_gated_layer", "output.dense": "mlp.down_layer",
            "output.LayerNorm": "layer_norm_2", "attention.layer_norm_1": "layer_norm_1",
        }),
        left_out=("position_embeddings",),
        change=_gate_last,
        configure=_jina_settings,
    ),
}  # fmt: skip


def republish(folder: Path, form: Published) -> None:
    """Store a saved model in the form of a repository."""
    config = json.loads((folder / "config.json").read_text())
    stored = {
        name: as_array(tensor).copy()
        for name, tensor in read_safetensors(folder / "model.safetensors").items()
    }
    tensors = {}
    for full_name, saved in stored.items():
        if any(part in full_name for part in form.left_out):
            continue
        name, values = full_name, form.change(full_name, saved)
        if form.joined and any(f"self_attn.{part}_proj" in name for part in "qkv"):
            if _QUERY not in name:
                continue
            parts = [stored[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            heads = config["num_key_value_heads"] if form.by_head else 1
            split = [part.reshape(heads, -1, *part.shape[1:]) for part in parts]
            values = np.concatenate(split, axis=1).reshape(-1, *parts[0].shape[1:])
            name = name.replace(_QUERY, form.joined)
        for part, other in form.names.items():
            name = name.replace(part, other)
        tensors[name] = np.ascontiguousarray(values)
    write_safetensors(folder / "model.safetensors", tensors)
    config["architectures"] = [form.model]
    for setting, other in form.settings.items():
        config[other] = config.pop(setting)
    form.configure(config)
    (folder / "config.json").write_text(json.dumps(config))
