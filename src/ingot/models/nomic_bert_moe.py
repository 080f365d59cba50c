"""Nomic Embed v2 (encoder): bidirectional attention, half-split RoPE, query, key and value in one
tensor, biases, post-norm layer norms; softmax experts without gates in every other layer."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_parts import EMBEDDINGS, encoder_keys
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import post_norm_encoder
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, ExpertsSpec, MlpSpec, Network


def _keys(s: Settings) -> Mapping[str, Value]:
    return {
        **encoder_keys(s),
        "moe_every_n_layers": s.integer("moe_every_n_layers"),
        "expert_count": s.integer("num_experts"),
        "expert_used_count": s.integer("moe_top_k"),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("NomicBertModel",),
        accepts=lambda s: s.integer("moe_every_n_layers", default=0) > 0,
        layers="encoder.layers",
        names={
            "attn.Wqkv": "attn_qkv",
            "attn.out_proj": "attn_output",
            "norm1": "attn_output_norm",
            "norm2": "layer_output_norm",
            "mlp.fc1": "ffn_up",
            "mlp.fc2": "ffn_down",
            "mlp.router.layer": "ffn_gate_inp",
            "mlp.experts.mlp.w1": "ffn_up_exps.weight",
            "mlp.experts.mlp.w2": "ffn_down_exps.weight",
        },
        outer={**EMBEDDINGS, "emb_ln": "token_embd_norm"},
        ignored=("mlp.experts.bias",),  # which llama.cpp leaves out too
        blocks={"ffn_down_exps.weight": lambda s: s.positive("n_inner", "intermediate_size")},
        shapes={
            "ffn_up_exps.weight": lambda shape, s: (
                s.positive("num_experts"),
                shape[0] // s.positive("num_experts"),
                shape[1],
            )
        },
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.HALF_SPLIT)
    mlp = MlpSpec(
        width=h.size("feed_forward_length"), activation=Activation.GELU, gated=False, bias=True
    )
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("feed_forward_length"),
        activation=Activation.GELU,
        gating=Gating.SOFTMAX,
        gated=False,
    )
    every = h.size("moe_every_n_layers")
    return post_norm_encoder(
        h,
        lambda kv_heads: AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=rope,
            fused_qkv=True,
            qkv_bias=True,
            output_bias=True,
            causal=False,
        ),
        [experts if index % every == 1 else mlp for index in range(h.layers)],
        ranks=False,
    )
