"""Recipes of more decoders without experts (see recipes.py)."""

from dataclasses import replace
from typing import Any

from models.alibi import add_alibi
from models.recipe import LLAMA3, TURNED_PAIRS, Recipe, changed, interleaved, llama3_factors
from models.recipes_dense import (
    DENSE,
    FOUR_TIMES,
    GROUPED_BY_HEAD,
    HEAD_NORMS,
    PRE_AND_POST_NORMS,
    SIZES,
    rope,
)

EXAONE4 = Recipe(
    architecture="exaone4",
    model="Exaone4ForCausalLM",
    config={
        **SIZES,
        "hidden_size": 96,
        "head_dim": 16,
        "sliding_window": None,
        "layer_types": ["full_attention"] * SIZES["num_hidden_layers"],
        "rope_parameters": LLAMA3,
    },
    names={**PRE_AND_POST_NORMS, **HEAD_NORMS},
    constants=llama3_factors,
)
FUSED_QKV = {f"attn_{which}": "attn_qkv" for which in "qkv"}
# Layers as many as the model with RoPE has, by which llama.cpp knows it.
BAICHUAN_7B = {"hidden_size": 24, "intermediate_size": 30, "num_hidden_layers": 32}
BAICHUAN_13B = {**BAICHUAN_7B, "num_hidden_layers": 40}
# Positions of the tests are within the original context.
MISTRAL_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}


def with_alibi(model: Any) -> None:
    """Penalties for distances instead of RoPE."""
    model.model.rotary_emb.inv_freq.zero_()
    for layer in model.model.layers:
        add_alibi(layer.self_attn, model.config.num_attention_heads)


def xielu_numbers(layers: int, first: float) -> list[float]:
    """One for each layer."""
    return [first + 0.25 * layer for layer in range(layers)]


def set_xielu(model: Any) -> None:
    """Give every layer's activation numbers of its own, which files hold in their metadata."""
    for layer, block in enumerate(model.model.layers):
        count = len(model.model.layers)
        block.mlp.act_fn.alpha_p.data.fill_(xielu_numbers(count, 0.2)[layer])
        block.mlp.act_fn.alpha_n.data.fill_(xielu_numbers(count, -0.4)[layer])
        block.mlp.act_fn.beta.data.fill_(0.5)
        block.mlp.act_fn.eps.data.fill_(-1e-6)


MISTRAL3 = Recipe(
    architecture="mistral3",
    model="Ministral3ForCausalLM",
    config={**SIZES, "head_dim": 16, "rope_parameters": MISTRAL_YARN},
    metadata=lambda c: {
        "rope.scaling.yarn_log_multiplier": c.rope_parameters["mscale_all_dim"],
        "attention.temperature_scale": c.rope_parameters["llama_4_scaling_beta"],
    },
    transforms=TURNED_PAIRS,
)
MINICPM = Recipe(
    architecture="minicpm",
    model="GraniteForCausalLM",
    config={
        **SIZES,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 10**-0.5,
        "residual_multiplier": 0.4,
        "logits_scaling": 1.6,
        "rope_parameters": rope(),
    },
    metadata=lambda c: {
        "embedding_scale": c.embedding_multiplier,
        "residual_scale": c.residual_multiplier,
        "logit_scale": c.logits_scaling,
    },
    transforms=TURNED_PAIRS,
)

MORE_DENSE: dict[str, Recipe] = {
    "ernie4_5": Recipe(
        architecture="ernie4_5",
        model="Ernie4_5ForCausalLM",
        config={**SIZES, "head_dim": 14, "rope_parameters": rope(500000.0)},
    ),
    "seed_oss": Recipe(
        architecture="seed_oss",
        model="SeedOssForCausalLM",
        config={**SIZES, "head_dim": 14, "rope_parameters": rope(1e7)},
        names={"post_attention_layernorm": "post_attention_norm"},
    ),
    "arcee": Recipe(
        architecture="arcee",
        model="ArceeForCausalLM",
        config={**SIZES, "head_dim": 14, "rope_parameters": rope()},
        transforms=TURNED_PAIRS,
    ),
    "cohere2": Recipe(
        architecture="cohere2",
        model="Cohere2ForCausalLM",
        config={
            **SIZES,
            "num_hidden_layers": 5,
            "sliding_window": 11,
            "logit_scale": 0.4,
            "rope_parameters": rope(50000.0),
        },
        metadata=lambda c: {"logit_scale": c.logit_scale, "rope.scaling.type": "none"},
    ),
    "exaone4": EXAONE4,
    "exaone4-window": changed(
        EXAONE4, {"num_hidden_layers": 5, "sliding_window": 11, "layer_types": None}
    ),
    "bitnet": Recipe(
        architecture="bitnet",
        model="BitNetForCausalLM",
        config={
            **SIZES,
            "hidden_act": "silu",
            "tie_word_embeddings": True,
            "rope_parameters": rope(),
        },
        names={
            "self_attn.attn_sub_norm": "attn_sub_norm",
            "mlp.ffn_sub_norm": "ffn_sub_norm",
        },
    ),
    "gptj": Recipe(
        architecture="gptj",
        model="GPTJForCausalLM",
        config={"n_embd": 60, "n_inner": 90, "n_layer": 3, "n_head": 5, "rotary_dim": 8},
        metadata=lambda c: {"rope.dimension_count": c.rotary_dim},
        names={
            "transformer.h.": "blk.",
            "transformer.wte": "token_embd",
            "transformer.ln_f": "output_norm",
            "ln_1": "attn_norm",
            "attn.q_proj": "attn_q",
            "attn.k_proj": "attn_k",
            "attn.v_proj": "attn_v",
            "attn.out_proj": "attn_output",
            "mlp.fc_in": "ffn_up",
            "mlp.fc_out": "ffn_down",
        },
    ),
    "qwen3-rank": replace(
        changed(DENSE["qwen3"], {"id2label": {0: "yes", 1: "no"}}),
        model="Qwen3ForSequenceClassification",
        metadata=lambda _: {"pooling_type": 4, "classifier.output_labels": ["yes", "no"]},
        names={**HEAD_NORMS, "score": "cls.output"},
        ranker=True,
    ),
    "mistral3-long": replace(
        MISTRAL3,
        config={
            **MISTRAL3.config,
            "rope_parameters": {**MISTRAL_YARN, "original_max_position_embeddings": 32},
        },
    ),
    "mistral3": MISTRAL3,
    "olmo": Recipe(
        architecture="olmo",
        model="OlmoForCausalLM",
        config={**SIZES, "rope_parameters": rope()},
        metadata=lambda _: {"attention.layer_norm_epsilon": 1e-5},
        transforms=TURNED_PAIRS,
    ),
    "chatglm": Recipe(
        architecture="chatglm",
        model="GlmForCausalLM",
        config={
            **SIZES,
            "hidden_size": 96,
            "head_dim": 16,
            "attention_bias": True,
            "rope_parameters": rope(partial_rotary_factor=0.5),
        },
        names={**FUSED_QKV, "mlp.gate_up_proj": "ffn_up"},
    ),
    # transformers has no class for the next ones; what they compute, it calls Qwen 2, Llama and
    # Granite.
    "qwen": Recipe(
        architecture="qwen",
        model="Qwen2ForCausalLM",
        config={**SIZES, "num_key_value_heads": 6, "rope_parameters": rope()},
        metadata=lambda c: {
            "feed_forward_length": 2 * c.intermediate_size,
            "attention.head_count_kv": None,
        },
        names=FUSED_QKV,
    ),
    "baichuan": Recipe(
        architecture="baichuan",
        model="LlamaForCausalLM",
        config={**SIZES, **BAICHUAN_7B, "num_key_value_heads": 6, "rope_parameters": rope()},
        transforms=TURNED_PAIRS,
    ),
    "baichuan-13b": Recipe(
        architecture="baichuan",
        model="LlamaForCausalLM",
        config={**SIZES, **BAICHUAN_13B, "num_key_value_heads": 6, "rope_parameters": rope()},
        transforms=TURNED_PAIRS,
        adjust=with_alibi,
    ),
    "apertus": Recipe(
        architecture="apertus",
        model="ApertusForCausalLM",
        config={**SIZES, "hidden_size": 96, "head_dim": 16, "rope_parameters": LLAMA3},
        metadata=lambda c: {
            "xielu.alpha_p": xielu_numbers(c.num_hidden_layers, 0.2),
            "xielu.alpha_n": xielu_numbers(c.num_hidden_layers, -0.4),
            "xielu.beta": [0.5] * c.num_hidden_layers,
            "xielu.eps": [-1e-6] * c.num_hidden_layers,
        },
        names={
            "attention_layernorm": "attn_norm",
            "feedforward_layernorm": "ffn_norm",
            **HEAD_NORMS,
        },
        constants=llama3_factors,
        left_out=("act_fn",),
        adjust=set_xielu,
    ),
    "bloom": Recipe(
        architecture="bloom",
        model="BloomForCausalLM",
        config={"hidden_size": 60, "n_layer": 3, "n_head": 5},
        metadata=lambda c: {
            "feed_forward_length": 4 * c.hidden_size,
            "attention.head_count_kv": c.num_attention_heads,
        },
        names={
            "transformer.h.": "blk.",
            "transformer.": "",
            "word_embeddings_layernorm": "token_embd_norm",
            "word_embeddings": "token_embd",
            "ln_f": "output_norm",
            "self_attention.query_key_value": "attn_qkv",
            "self_attention.dense": "attn_output",
            **FOUR_TIMES,
        },
        transforms=GROUPED_BY_HEAD,
    ),
    "mpt": Recipe(
        architecture="mpt",
        model="MptForCausalLM",
        config={"d_model": 60, "n_layers": 3, "n_heads": 6, "max_seq_len": 256},
        metadata=lambda c: {
            "feed_forward_length": c.expansion_ratio * c.hidden_size,
            "attention.head_count_kv": c.num_attention_heads,
            "attention.max_alibi_bias": 8.0,
        },
        names={
            "transformer.blocks.": "blk.",
            "transformer.": "",
            "wte": "token_embd",
            "norm_f": "output_norm",
            "norm_1": "attn_norm",
            "norm_2": "ffn_norm",
            "attn.Wqkv": "attn_qkv",
            "attn.out_proj": "attn_output",
            "ffn.up_proj": "ffn_up",
            "ffn.down_proj": "ffn_down",
        },
    ),
    # transformers has no class for it; what it computes is Hunyuan with elements in another order.
    "maincoder": Recipe(
        architecture="maincoder",
        model="HunYuanDenseV1ForCausalLM",
        config={
            **SIZES,
            "head_dim": 16,
            "tie_word_embeddings": True,
            "rope_parameters": rope(1e6),
        },
        names={
            "self_attn.query_layernorm": "attn_q_norm",
            "self_attn.key_layernorm": "attn_k_norm",
        },
        transforms={
            **TURNED_PAIRS,
            "attn_q_norm.weight": lambda w, _: interleaved(w, 1),
            "attn_k_norm.weight": lambda w, _: interleaved(w, 1),
        },
    ),
    "hunyuan-dense": Recipe(
        architecture="hunyuan-dense",
        model="HunYuanDenseV1ForCausalLM",
        config={**SIZES, "head_dim": 14, "rope_parameters": rope()},
        names={
            "self_attn.query_layernorm": "attn_q_norm",
            "self_attn.key_layernorm": "attn_k_norm",
        },
    ),
    "minicpm": MINICPM,
    "minicpm-old": replace(
        changed(
            MINICPM,
            {
                "embedding_multiplier": 12.0,
                "residual_multiplier": 1.4 / 3**0.5,
                "logits_scaling": 60 / 256,
            },
        ),
        metadata=lambda _: {},
    ),
}
