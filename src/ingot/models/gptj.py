"""GPT-J: layer norms, parallel attention and feed-forward network after one norm, interleaved RoPE
on part of each head, biases everywhere but in attention."""

from ingot.graph.ops import Activation, NormKind, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("GPTJForCausalLM",),
        layers="transformer.h",
        names={
            "ln_1": "attn_norm",
            "attn.q_proj": "attn_q",
            "attn.k_proj": "attn_k",
            "attn.v_proj": "attn_v",
            "attn.out_proj": "attn_output",
            "mlp.fc_in": "ffn_up",
            "mlp.fc_out": "ffn_down",
        },
        outer={"transformer.wte": "token_embd", "transformer.ln_f": "output_norm"},
        ignored=(".attn.bias", ".attn.masked_bias"),
        keys=lambda s: {
            "rope.dimension_count": s.integer("rotary_dim"),
            "feed_forward_length": s.integer("n_inner", default=4 * s.width),
        },
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER, bias=True)

    rope = h.rope(RopeLayout.INTERLEAVED)
    mlp = MlpSpec(
        width=h.size("feed_forward_length"),
        activation=Activation.GELU_TANH,
        gated=False,
        bias=True,
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=rope
            ),
            attention_norm=norm("attn_norm"),
            mlp=mlp,
            mlp_norm=None,
            parallel=True,
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        output_bias=True,
    )
