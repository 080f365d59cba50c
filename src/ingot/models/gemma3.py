"""Gemma 3 (text): pre-norms and post-norms, norms of query and key, a scaled embedding, five layers
with a sliding window for each layer without one."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import ONE_MORE, PRE_AND_POST_NORMS, Checkpoint, Value, window_key
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

_FULL_EVERY = 6
_WINDOW_BASE = 10000.0
_QUERY_SCALED_LAYERS = 62  # the 27B model scales by width / heads instead of the head size


# Those of the 4B model; its file states only where it differs from them.
_DEFAULTS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 131072,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": _WINDOW_BASE,
    "vocab_size": 262208,
}


def _keys(s: Settings) -> Mapping[str, Value]:
    return {**window_key(s), "final_logit_softcapping": s.find("final_logit_softcapping")}


CHECKPOINTS = (
    Checkpoint(
        models=(
            "Gemma3ForCausalLM",
            "Gemma3ForConditionalGeneration",
        ),
        names=PRE_AND_POST_NORMS,
        values=ONE_MORE,
        keys=_keys,
        defaults=_DEFAULTS,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    full_rope = h.rope(RopeLayout.HALF_SPLIT)
    window_rope = h.window_rope(RopeLayout.HALF_SPLIT, _WINDOW_BASE)
    scale = (h.width / h.heads) ** -0.5 if h.layers == _QUERY_SCALED_LAYERS else None
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        full = (index + 1) % _FULL_EVERY == 0
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=full_rope if full else window_rope,
            scale=scale,
            query_norm=norm("attn_q_norm"),
            key_norm=norm("attn_k_norm"),
            window=0 if full else h.size("attention.sliding_window"),
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=norm("attn_norm"),
                attention_post_norm=norm("post_attention_norm"),
                mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.GELU_TANH),
                mlp_norm=norm("ffn_norm"),
                mlp_post_norm=norm("post_ffw_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        embedding_scale=h.width**0.5,
        logit_softcap=h.number("final_logit_softcapping", 0.0),
    )
