"""StableLM: layer norms, RoPE on part of each head; the 12B model normalizes each query and key
head and runs attention and feed-forward network in parallel."""

from ingot.graph.ops import Activation, NormKind, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormOver, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("StableLmForCausalLM",),
        names={
            "self_attn.q_layernorm.norms.{}": "attn_q_norm",
            "self_attn.k_layernorm.norms.{}": "attn_k_norm",
        },
        keys=lambda s: {"use_parallel_residual": s.boolean("use_parallel_residual", False)},
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str, bias: bool = True) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER, bias)

    def head_norm(name: str) -> NormSpec | None:
        return norm(name, bias=False) if h.has_tensor(f"blk.0.{name}.weight") else None

    rope = h.rope(RopeLayout.HALF_SPLIT)
    parallel = not h.has_tensor("blk.0.ffn_norm.weight")
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                qkv_bias=h.has_tensor("blk.0.attn_q.bias"),
                query_norm=head_norm("attn_q_norm"),
                key_norm=head_norm("attn_k_norm"),
                norm_over=NormOver.EACH_HEAD,
            ),
            attention_norm=norm("attn_norm"),
            mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
            mlp_norm=None if parallel else norm("ffn_norm"),
            parallel=parallel,
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
