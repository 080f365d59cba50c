"""One small recipe per architecture: a tiny configuration of its model in `transformers`.

A recipe says what is special; what most architectures share (names of tensors, keys of the
metadata) is in make_fixtures.py. Sizes are odd on purpose: no power of two where none is
needed, several query heads per key head, more tokens than a block of the cache.

To add an architecture, add a Recipe and run make_fixtures.py with its name.
"""

from dataclasses import replace

from models.recipe import LLAMA3, TURNED_PAIRS, Recipe, changed, llama3_factors
from models.recipes_corrected_experts import CORRECTED_EXPERTS
from models.recipes_delta import DELTA
from models.recipes_dense import DENSE
from models.recipes_encoder_decoders import ENCODER_DECODERS
from models.recipes_encoders import ENCODERS
from models.recipes_experts import EXPERTS
from models.recipes_hybrid import HYBRID
from models.recipes_latents import LATENTS
from models.recipes_more_dense import MORE_DENSE
from models.recipes_multimodal import MULTIMODAL
from models.recipes_recurrent import RECURRENT
from models.recipes_streams import STREAMS

LLAMA = Recipe(
    architecture="llama",
    model="LlamaForCausalLM",
    config={
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    transforms=TURNED_PAIRS,
)
GEMMA3 = Recipe(
    architecture="gemma3",
    model="Gemma3ForCausalLM",
    config={
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 7,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 20,
        "query_pre_attn_scalar": 20,
        "sliding_window": 9,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    metadata=lambda c: (
        {"final_logit_softcapping": c.final_logit_softcapping} if c.final_logit_softcapping else {}
    ),
    names={
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
    },
    transforms={"norm.weight": lambda w, _: w - 1},
)


# Layers as many as the largest Gemma 3 has, which scales its queries differently.
GEMMA3_LARGEST = {
    "hidden_size": 24,
    "intermediate_size": 30,
    "num_hidden_layers": 62,
    "head_dim": 4,
    "query_pre_attn_scalar": 8,
    "final_logit_softcapping": 3.0,
}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 10000.0,
}
PHI2 = Recipe(
    architecture="phi2",
    model="PhiForCausalLM",
    config={
        "hidden_size": 60,
        "intermediate_size": 130,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.4,
        },
    },
    names={
        "self_attn.dense": "attn_output",
        "mlp.fc1": "ffn_up",
        "mlp.fc2": "ffn_down",
        "final_layernorm": "output_norm",
    },
)

RECIPES: dict[str, Recipe] = {
    "llama": LLAMA,
    "llama-linear": changed(LLAMA, {"rope_parameters": LINEAR}),
    "llama-yarn": changed(LLAMA, {"rope_parameters": YARN}),
    "llama-biases": changed(LLAMA, {"attention_bias": True, "mlp_bias": True}),
    "llama-factors": replace(changed(LLAMA, {"rope_parameters": LLAMA3}), constants=llama3_factors),
    "qwen2": Recipe(
        architecture="qwen2",
        model="Qwen2ForCausalLM",
        config={
            "hidden_size": 64,
            "intermediate_size": 100,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
    ),
    "phi2": PHI2,
    "phi2-fused": replace(
        PHI2,
        names={**PHI2.names, **{f"attn_{which}": "attn_qkv" for which in "qkv"}},
    ),
    "gemma3": GEMMA3,
    "gemma3-largest": changed(GEMMA3, GEMMA3_LARGEST),
    **DENSE,
    **ENCODERS,
    **ENCODER_DECODERS,
    **EXPERTS,
    **CORRECTED_EXPERTS,
    **DELTA,
    **HYBRID,
    **LATENTS,
    **MORE_DENSE,
    **MULTIMODAL,
    **RECURRENT,
    **STREAMS,
}
