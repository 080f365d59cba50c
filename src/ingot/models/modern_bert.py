"""ModernBERT (encoder): bidirectional attention with half-split RoPE, in two of three layers over a
window; layer norms without biases, GeGLU with gate and up in one tensor."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, NormKind, RopeLayout
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_parts import encoder_keys
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

_FULL_EVERY = 3
_WINDOW_BASE = 10000.0


def _keys(s: Settings) -> Mapping[str, Value]:
    rope = s.window_rope or {}
    return {
        **encoder_keys(s),
        "attention.sliding_window": s.integer("local_attention"),
        "attention.sliding_window_pattern": s.integer(
            "global_attn_every_n_layers", default=_FULL_EVERY
        ),
        "attention.layer_norm_epsilon": s.number("norm_eps"),
        "rope.freq_base": (s.rope or {}).get("rope_theta", s.find("global_rope_theta")),
        "rope.freq_base_swa": rope.get("rope_theta", s.find("local_rope_theta")),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("ModernBertModel", "ModernBertForMaskedLM"),
        layers="layers",
        names={
            "attn_norm": "attn_norm",
            "attn.Wqkv": "attn_qkv",
            "attn.Wo": "attn_output",
            "mlp_norm": "ffn_norm",
            "mlp.Wi": "ffn_up",
            "mlp.Wo": "ffn_down",
        },
        outer={
            "embeddings.tok_embeddings": "token_embd",
            "embeddings.norm": "token_embd_norm",
            "final_norm": "output_norm",
        },
        prefixes=("model.",),
        ignored=("head.dense.weight", "head.norm.weight", "decoder.weight", "decoder.bias"),
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER)

    full_rope = h.rope(RopeLayout.HALF_SPLIT)
    window_rope = h.window_rope(RopeLayout.HALF_SPLIT, _WINDOW_BASE)
    every = h.size("attention.sliding_window_pattern", _FULL_EVERY)
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        full = index % every == 0
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=full_rope if full else window_rope,
            fused_qkv=True,
            causal=False,
            window=0 if full else h.size("attention.sliding_window"),
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=norm("attn_norm") if index else None,
                mlp=MlpSpec(
                    width=h.size("feed_forward_length"), activation=Activation.GELU, fused_gate=True
                ),
                mlp_norm=norm("ffn_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        embedding_norm=norm("token_embd_norm"),
        logits=False,
    )
