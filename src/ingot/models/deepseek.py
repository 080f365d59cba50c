"""DeepSeek V1 (DeepSeekMoE 16B): interleaved RoPE, softmax experts whose weights stay as they are,
shared experts, first layers dense."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import INTERLEAVED, Checkpoint, Value
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, MlpSpec, Network, NormSpec


def _fits(s: Settings) -> bool:
    """Whether a file means these experts: every layer after the first ones has them."""
    every = s.integer("moe_layer_freq", default=1) == 1
    softmax = s.find("scoring_func") in (None, "softmax")
    return every and softmax and not s.boolean("norm_topk_prob", False)


def _keys(s: Settings) -> Mapping[str, Value]:
    return {
        "expert_shared_count": s.positive("n_shared_experts"),
        "leading_dense_block_count": s.integer("first_k_dense_replace", default=0),
        "expert_weights_scale": 1.0,
    }


CHECKPOINTS = (
    Checkpoint(
        models=("DeepseekForCausalLM",),
        accepts=_fits,
        names=INTERLEAVED,
        keys=_keys,
        defaults={"rope_theta": 10000.0},
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.INTERLEAVED)
    dense = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=Gating.SOFTMAX,
        scale=h.positive("expert_weights_scale", 1.0),
        shared=h.shared_expert(),
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=rope
            ),
            attention_norm=norm("attn_norm"),
            mlp=dense if index < h.dense_layers else experts,
            mlp_norm=norm("ffn_norm"),
        )
        for index, kv_heads in enumerate(h.kv_heads)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
    )
