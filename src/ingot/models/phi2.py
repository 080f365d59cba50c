"""Phi-2: layer norms, parallel attention and feed-forward network, RoPE on part of each head,
biases."""

from ingot.graph.ops import Activation, NormKind, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("PhiForCausalLM",),
        names={"self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"},
        outer={"model.final_layernorm": "output_norm"},
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER, bias=True)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                fused_qkv=h.has_tensor("blk.0.attn_qkv.weight"),
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
