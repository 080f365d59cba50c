"""MiniCPM 3: multi-head latent attention with half-split RoPE, multipliers for the embedding,
residual additions and logits."""

from collections.abc import Mapping

from ingot.errors import ConversionError
from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_parts import LATENTS
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import LayerSpec, MlpSpec, Network, NormSpec

_EMBEDDING_SCALE, _DEPTH_SCALE, _BASE_WIDTH = 12.0, 1.4, 256  # which no file states


def _keys(s: Settings) -> Mapping[str, Value]:
    fixed = {
        "scale_emb": _EMBEDDING_SCALE,
        "scale_depth": _DEPTH_SCALE,
        "dim_model_base": _BASE_WIDTH,
    }
    for name, value in fixed.items():
        if s.number(name, default=value) != value:
            raise ConversionError(f"config.json: {name} must be {value}, because no file states it")
    rotary = s.integer("qk_rope_head_dim")
    return {
        "attention.q_lora_rank": s.integer("q_lora_rank"),
        "attention.kv_lora_rank": s.integer("kv_lora_rank"),
        "attention.key_length": s.integer("qk_nope_head_dim") + rotary,
        "attention.value_length": None,
        "rope.dimension_count": rotary,
        "rope.scaling.attn_factor": None,
    }


CHECKPOINTS = (
    Checkpoint(
        models=("MiniCPM3ForCausalLM",),
        names={**LATENTS, "self_attn.kv_b_proj": "attn_kv_b"},
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    layer = LayerSpec(
        attention=h.latents(RopeLayout.HALF_SPLIT),
        attention_norm=norm("attn_norm"),
        mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
        mlp_norm=norm("ffn_norm"),
        residual_scale=_DEPTH_SCALE / h.layers**0.5,
    )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=[layer] * h.layers,
        output_norm=norm("output_norm"),
        embedding_scale=_EMBEDDING_SCALE,
        logit_scale=_BASE_WIDTH / h.width,
    )
