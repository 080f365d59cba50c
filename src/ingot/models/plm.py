"""PLM: multi-head latent attention with interleaved RoPE, an ungated feed-forward network with
squared ReLU."""

from collections.abc import Mapping

from ingot.graph.ops import Activation
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_parts import LATENTS
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import LayerSpec, MlpSpec, Network, NormSpec


def _keys(s: Settings) -> Mapping[str, Value]:
    rotary = s.integer("qk_rope_head_dim")
    return {
        "attention.kv_lora_rank": s.integer("kv_lora_rank"),
        "attention.key_length": s.integer("qk_nope_head_dim") + rotary,
        "attention.value_length": s.integer("v_head_dim"),
        "rope.dimension_count": rotary,
    }


CHECKPOINTS = (
    Checkpoint(
        models=("PLMForCausalLM",),
        accepts=lambda s: s.find("q_lora_rank") is None,  # files have no place for its matrices
        names={**LATENTS, "self_attn.kv_b_proj": "attn_kv_b"},
        keys=_keys,
        defaults={"tie_word_embeddings": True},
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    layer = LayerSpec(
        attention=h.latents(),
        attention_norm=norm("attn_norm"),
        mlp=MlpSpec(
            width=h.size("feed_forward_length"), activation=Activation.RELU_SQUARED, gated=False
        ),
        mlp_norm=norm("ffn_norm"),
    )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=[layer] * h.layers,
        output_norm=norm("output_norm"),
    )
