"""Parts of stored forms that several architectures share: names, shapes, keys of a kind of layer.

`checkpoint.py` says what a stored form is; parts of layers with a state are in
`checkpoint_states.py`. Nothing here knows which architectures use it.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ingot.errors import ConversionError
from ingot.models.checkpoint import Checkpoint, Order, Place, Rows, Shape, Value, halves
from ingot.models.settings import Settings, rope_number


def layer_kinds(s: Settings, *names: str) -> Sequence[str]:
    """What each layer is, as one of these settings lists it."""
    kinds = s.find(*names)
    if not isinstance(kinds, list | str) or not all(isinstance(kind, str) for kind in kinds):
        raise ConversionError(f"config.json does not list its layers ({' or '.join(names)})")
    if len(kinds) != s.layers:
        raise ConversionError(f"config.json lists {len(kinds)} of {s.layers} layers ({names[0]})")
    return kinds


def sees_everything(s: Settings) -> bool:
    """Whether no layer has a sliding window, where files state none."""
    kinds = s.find("layer_types")
    if isinstance(kinds, list):
        return "sliding_attention" not in kinds
    windows_from = s.integer("max_window_layers", default=0)
    return not s.boolean("use_sliding_window", False) or windows_from >= s.layers


def has_no_window(s: Settings) -> bool:
    """The same for classes whose windows do not begin at `max_window_layers`."""
    return not s.boolean("use_sliding_window", False) and sees_everything(s)


def axes_key(s: Settings, sections: Sequence[int]) -> Mapping[str, Value]:
    """Pairs that M-RoPE rotates by time, height and width; `sections` if config.json is silent.

    Positions of text are the same on all axes, so it is plain RoPE there.
    """
    found = (s.rope or {}).get("mrope_section", sections)
    if not isinstance(found, list | tuple) or not all(type(item) is int for item in found[:5]):
        raise ConversionError(f"config.json: mrope_section is {found!r}; it must be integers")
    return {"rope.dimension_sections": [*found, 0, 0, 0, 0][:4]}


def deepstack_key(s: Settings) -> Mapping[str, Value]:
    """The first layers after which features of images join the stream; text has none."""
    vision = s.find("vision_config")
    layers = vision.get("deepstack_visual_indexes") if isinstance(vision, Mapping) else None
    return {"n_deepstack_layers": len(layers) if isinstance(layers, list) else 0}


# Encoders.
EMBEDDINGS: Mapping[str, Place] = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
}
ENCODER_ATTENTION: Mapping[str, Place] = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
}
# Numbers of positions, and heads that only the training of encoders needs.
UNUSED_BY_EMBEDDERS = (
    "embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias",
    "cls.predictions.bias", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias",
    "cls.predictions.transform.dense.weight", "cls.predictions.transform.dense.bias",
    "cls.predictions.transform.LayerNorm.weight", "cls.predictions.transform.LayerNorm.bias",
    "cls.seq_relationship.weight", "cls.seq_relationship.bias",
)  # fmt: skip
RANK = 4  # the pooling type of a model that scores texts


def encoder_keys(s: Settings) -> Mapping[str, Value]:
    """What all encoders state."""
    return {
        "attention.causal": False,
        "tokenizer.ggml.token_type_count": s.integer("type_vocab_size", default=0) or None,
    }


def ranker_keys(s: Settings) -> Mapping[str, Value]:
    """What models that score texts state: the names of their scores, if they have some."""
    names = s.find("id2label")
    found = names if isinstance(names, Mapping) else {}
    numbers = sorted((key for key in found if str(key).isdecimal()), key=int)
    labels = [str(found[number]) for number in numbers]
    return {"pooling_type": RANK, "classifier.output_labels": labels or None}


def multiplier_keys(s: Settings) -> Mapping[str, Value]:
    """Multipliers of the embedding, attention, residual additions and logits."""
    return {
        "embedding_scale": s.number("embedding_multiplier", default=1.0),
        "attention.scale": s.number("attention_multiplier", default=1.0),
        "residual_scale": s.number("residual_multiplier", default=1.0),
        "logit_scale": s.number("logits_scaling", default=1.0),
    }


def shared_mlp(gate: str, up: str, down: str) -> Mapping[str, Place]:
    """A network that every token uses, by its names in the file."""
    return {
        "shared_mlp.input_linear": Rows((gate, up), halves),
        "shared_mlp.output_linear": down,
    }


# Experts whose gate and up matrices are one tensor: as files have them, and as modules do, which is
# how adapters name them.
_GATE_UP = Rows(("ffn_gate_exps.weight", "ffn_up_exps.weight"), halves)
FUSED_EXPERTS: Mapping[str, Place] = {
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "block_sparse_moe.router": "ffn_gate_inp",
    "block_sparse_moe.input_linear": Rows(("ffn_gate_exps", "ffn_up_exps"), halves),
    "block_sparse_moe.output_linear": "ffn_down_exps",
    "block_sparse_moe.experts.gate_up_proj": _GATE_UP,
    "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight",
    **shared_mlp("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"),
}


# Inputs of layers, made of the token; layers that read the keys and values of others.
LAYER_INPUTS: Mapping[str, Place] = {
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
LAYER_INPUTS_OUTER: Mapping[str, Place] = {
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
}


def layer_input_keys(s: Settings) -> Mapping[str, Value]:
    """Their width, the layers that share, and the window of the others."""
    window = s.window_rope or {}
    return {
        "attention.sliding_window": s.integer("sliding_window"),
        "attention.sliding_window_pattern": [
            kind == "sliding_attention" for kind in layer_kinds(s, "layer_types")
        ],
        "attention.shared_kv_layers": s.integer("num_kv_shared_layers", default=0),
        "embedding_length_per_layer_input": s.integer("hidden_size_per_layer_input", default=0),
        "rope.freq_base_swa": window.get("rope_theta"),
        "final_logit_softcapping": s.find("final_logit_softcapping"),
    }


# Multi-head latent attention.
def _keys_and_values(rows: int, s: Settings) -> Sequence[Order]:
    """The rows that make the keys, and those that make the values, of all heads."""
    by_head = np.arange(rows).reshape(s.heads, -1)
    return [part.reshape(-1) for part in np.split(by_head, [s.positive("qk_nope_head_dim")], 1)]


LATENTS: Mapping[str, Place] = {
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": Rows(("attn_k_b", "attn_v_b"), _keys_and_values),
}
LATENT_BLOCKS: Mapping[str, Callable[[Settings], int]] = {
    "attn_k_b.weight": lambda s: s.positive("qk_nope_head_dim")
}
LATENT_SHAPES: Mapping[str, Callable[[Shape, Settings], Shape]] = {
    "attn_v_b.weight": lambda shape, s: (s.heads, shape[0] // s.heads, shape[1])
}


def latent_keys(s: Settings) -> Mapping[str, Value]:
    """Sizes of latents, YaRN's share in the scale of attention, and experts."""
    latent, rotary = s.integer("kv_lora_rank"), s.integer("qk_rope_head_dim")
    rope = s.rope or {}
    scaled = rope.get("mscale_all_dim") is not None
    kinds = s.find("mlp_layer_types")
    dense = kinds.index("sparse") if isinstance(kinds, list) and "sparse" in kinds else 0
    return {
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": s.find("q_lora_rank"),
        "attention.kv_lora_rank": latent,
        "attention.key_length": latent + rotary,
        "attention.value_length": latent,
        "attention.key_length_mla": s.integer("qk_nope_head_dim") + rotary,
        "attention.value_length_mla": s.integer("v_head_dim"),
        "rope.dimension_count": rotary,
        "rope.scaling.yarn_log_multiplier": (
            0.1 * rope_number(rope, "mscale_all_dim") if scaled else None
        ),
        "expert_shared_count": s.integer("n_shared_experts", default=0),
        "leading_dense_block_count": s.integer("first_k_dense_replace", default=dense),
        "expert_weights_norm": s.boolean("norm_topk_prob", False),
        "expert_weights_scale": s.number("routed_scaling_factor", default=1.0),
        "expert_group_count": s.find("n_group"),
        "expert_group_used_count": s.find("topk_group"),
    }


_SIGMOID = 2  # a file's number of this gating

# An indexer that chooses which latents a token sees.
INDEXED_LATENTS: Mapping[str, Place] = {
    **LATENTS,
    "self_attn.indexer.wq_b": "indexer.attn_q_b",
    "self_attn.indexer.wk": "indexer.attn_k",
    "self_attn.indexer.k_norm": "indexer.k_norm",
    "self_attn.indexer.weights_proj": "indexer.proj",
}


def indexed_checkpoint(model: str) -> Checkpoint:
    """The stored form of a class with latents, an indexer and sigmoid experts."""
    return Checkpoint(
        models=(model,),
        names=INDEXED_LATENTS,
        blocks=LATENT_BLOCKS,
        shapes=LATENT_SHAPES,
        keys=lambda s: {
            **latent_keys(s),
            **_indexer_keys(s),
            "expert_gating_func": _SIGMOID,
        },
    )


def _indexer_keys(s: Settings) -> Mapping[str, Value]:
    """Its sizes, and which layers have one of their own, where config.json says it."""
    kinds = s.find("indexer_types")
    listed = isinstance(kinds, list) and len(kinds) == s.layers
    return {
        "attention.indexer.head_count": s.integer("index_n_heads"),
        "attention.indexer.key_length": s.integer("index_head_dim"),
        "attention.indexer.top_k": s.integer("index_topk"),
        "attention.indexer.types": [kind == "full" for kind in kinds] if listed else None,
    }
