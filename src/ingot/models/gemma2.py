"""Gemma 2: pre-norms and post-norms, soft caps on attention scores and logits, a sliding window in
every other layer."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import ONE_MORE, PRE_AND_POST_NORMS, Checkpoint, Value, window_key
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

_WINDOW = 4096
_SCORE_CAP, _LOGIT_CAP = 50.0, 30.0
_QUERY_SCALED_LAYERS = 46  # the 27B model scales by width / heads instead of the head size


def _keys(s: Settings) -> Mapping[str, Value]:
    return {
        **window_key(s),
        "attn_logit_softcapping": s.number("attn_logit_softcapping"),
        "final_logit_softcapping": s.number("final_logit_softcapping"),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("Gemma2ForCausalLM",), names=PRE_AND_POST_NORMS, values=ONE_MORE, keys=_keys
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    scale = (h.width / h.heads) ** -0.5 if h.layers == _QUERY_SCALED_LAYERS else None
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                scale=scale,
                softcap=h.number("attn_logit_softcapping", _SCORE_CAP),
                window=h.window(_WINDOW) if index % 2 == 0 else 0,
            ),
            attention_norm=norm("attn_norm"),
            attention_post_norm=norm("post_attention_norm"),
            mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.GELU_TANH),
            mlp_norm=norm("ffn_norm"),
            mlp_post_norm=norm("post_ffw_norm"),
        )
        for index, kv_heads in enumerate(h.kv_heads)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        embedding_scale=h.width**0.5,
        logit_softcap=h.number("final_logit_softcapping", _LOGIT_CAP),
    )
