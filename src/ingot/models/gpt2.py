"""GPT-2: learned positions instead of RoPE, layer norms, biases everywhere."""

from ingot.graph.ops import Activation, NormKind
from ingot.models.checkpoint import Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("GPT2LMHeadModel",),
        layers="transformer.h",
        names={
            "ln_1": "attn_norm",
            "ln_2": "ffn_norm",
            "attn.c_attn": "attn_qkv",
            "attn.c_proj": "attn_output",
            "mlp.c_fc": "ffn_up",
            "mlp.c_proj": "ffn_down",
        },
        outer={
            "transformer.wte": "token_embd",
            "transformer.wpe": "position_embd",
            "transformer.ln_f": "output_norm",
        },
        ignored=(".attn.bias", ".attn.masked_bias"),
        transposed=("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"),
        keys=lambda s: {"feed_forward_length": s.integer("n_inner", default=4 * s.width)},
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER, bias=True)

    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=None,
                fused_qkv=True,
                qkv_bias=True,
                output_bias=True,
            ),
            attention_norm=norm("attn_norm"),
            mlp=MlpSpec(
                width=h.size("feed_forward_length"),
                activation=Activation.GELU_TANH,
                gated=False,
                bias=True,
            ),
            mlp_norm=norm("ffn_norm"),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        learned_positions=True,
    )
