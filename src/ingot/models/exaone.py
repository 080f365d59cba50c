"""EXAONE 3: RMS norms, half-split RoPE with factors for long contexts, SwiGLU."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("ExaoneForCausalLM",),
        layers="transformer.h",
        names={
            "ln_1": "attn_norm",
            "ln_2": "ffn_norm",
            "attn.attention.q_proj": "attn_q",
            "attn.attention.k_proj": "attn_k",
            "attn.attention.v_proj": "attn_v",
            "attn.attention.out_proj": "attn_output",
            "mlp.c_fc_0": "ffn_gate",
            "mlp.c_fc_1": "ffn_up",
            "mlp.c_proj": "ffn_down",
        },
        outer={"transformer.wte": "token_embd", "transformer.ln_f": "output_norm"},
        keys=lambda s: {
            "attention.layer_norm_epsilon": None,
            "attention.layer_norm_rms_epsilon": s.number("layer_norm_epsilon"),
        },
    ),
)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.HALF_SPLIT)
    mlp = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=rope
            ),
            attention_norm=NormSpec("attn_norm", h.rms_epsilon),
            mlp=mlp,
            mlp_norm=NormSpec("ffn_norm", h.rms_epsilon),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=NormSpec("output_norm", h.rms_epsilon),
    )
