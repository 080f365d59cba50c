"""BitNet b1.58: half-split RoPE, SwiGLU; one more norm before each block's last matrix."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("BitnetForCausalLM",),  # its own code rounds the matrices on use
        names={
            "self_attn.inner_attn_ln": "attn_sub_norm",
            "mlp.ffn_layernorm": "ffn_sub_norm",
        },
        ternary=(
            "attn_q.weight",
            "attn_k.weight",
            "attn_v.weight",
            "attn_output.weight",
            "ffn_gate.weight",
            "ffn_up.weight",
            "ffn_down.weight",
        ),
    ),
    Checkpoint(  # the class of `transformers`, which takes the matrices as they are stored
        models=("BitNetForCausalLM",),
        accepts=lambda s: s.find("hidden_act") == "silu",  # the only one that files mean
        names={
            "self_attn.attn_sub_norm": "attn_sub_norm",
            "mlp.ffn_sub_norm": "ffn_sub_norm",
        },
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                inner_norm=norm("attn_sub_norm"),
            ),
            attention_norm=norm("attn_norm"),
            mlp=MlpSpec(
                width=h.size("feed_forward_length"),
                activation=Activation.SILU,
                inner_norm=norm("ffn_sub_norm"),
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
    )
