"""MPT: ALiBi instead of positions, layer norms without biases, query, key and value in one tensor,
an ungated GELU feed-forward network."""

from collections.abc import Mapping

from ingot.errors import ModelError
from ingot.graph.ops import Activation, NormKind
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

_LARGEST = 8  # the bias of ALiBi that `transformers` has for all of them


def _attention(s: Settings) -> Settings:
    found = s.find("attn_config")
    return Settings(found if isinstance(found, Mapping) else {})


def _is_plain(s: Settings) -> bool:
    """Whether attention is the one that `transformers` computes."""
    own = _attention(s)
    return (
        own.boolean("alibi", True)
        and own.find("attn_type") in (None, "multihead_attention")
        and own.find("softmax_scale") is None
        and not own.boolean("prefix_lm", False)
        and not own.boolean("qk_ln", False)
        and s.find("logit_scale") is None
    )


def _keys(s: Settings) -> Mapping[str, Value]:
    heads = s.positive("n_heads")
    return {
        "context_length": s.positive("max_seq_len"),
        "feed_forward_length": s.positive("expansion_ratio", default=4) * s.width,
        "attention.head_count": heads,
        "attention.head_count_kv": heads,
        "attention.layer_norm_epsilon": s.number("layer_norm_epsilon", default=1e-5),
        "attention.clamp_kqv": _attention(s).find("clip_qkv"),
        "attention.max_alibi_bias": _attention(s).number("alibi_bias_max", default=_LARGEST),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("MptForCausalLM", "MPTForCausalLM"),
        accepts=_is_plain,
        prefixes=("transformer.",),
        layers="blocks",
        names={
            "norm_1": "attn_norm",
            "attn.Wqkv": "attn_qkv",
            "attn.out_proj": "attn_output",
            "norm_2": "ffn_norm",
            "ffn.up_proj": "ffn_up",
            "ffn.down_proj": "ffn_down",
        },
        outer={"wte": "token_embd", "norm_f": "output_norm"},
        keys=_keys,
        defaults={"tie_word_embeddings": True},
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER)

    for key, fitting in (("clamp_kqv", 0.0), ("max_alibi_bias", float(_LARGEST))):
        if (found := h.number(f"attention.{key}", 0.0)) != fitting:
            raise ModelError(
                f"{h.architecture}.attention.{key} is {found}; models that clamp query, key and "
                f"value, or whose ALiBi does not end at {_LARGEST}, are not supported"
            )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=None,
                alibi=True,
                fused_qkv=True,
            ),
            attention_norm=norm("attn_norm"),
            mlp=MlpSpec(
                width=h.size("feed_forward_length"), activation=Activation.GELU, gated=False
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
