"""EAGLE-3: a llama layer that guesses tokens from the hidden states of three layers of its target.

It reads token and hidden state side by side and guesses from a smaller vocabulary. What it lacks
(embedding, output matrix) is the target's."""

import numpy as np

from ingot.errors import ModelError
from ingot.graph.ops import Activation, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, DraftSpec, MlpSpec, NormSpec

_LAYERS = ("target_layers", "extract_layers")  # the second is the name in older files
_TOKEN_MAP = "d2t"


def draft(h: Hyperparameters) -> DraftSpec:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    h.size("block_count", most=1)
    maps = h.has_tensor(_TOKEN_MAP)
    return DraftSpec(
        width=h.width,
        vocabulary=h.vocabulary,
        outputs=h.tensors[_TOKEN_MAP].shape[0] if maps else h.vocabulary,
        context_length=h.context_length,
        target_width=h.size("target_hidden_size"),
        target_layers=_target_layers(h),
        target_norm=norm("enc.output_norm") if h.boolean("norm_before_fc", False) else None,
        token_norm=norm("attn_norm"),
        hidden_norm=norm("attn_norm_2"),
        adds_to_normed=h.boolean("norm_before_residual", False),
        attention=AttentionSpec(
            heads=h.heads,
            kv_heads=h.kv_heads[0],
            head_size=h.head_size,
            rope=h.rope(RopeLayout.INTERLEAVED),
        ),
        mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
        mlp_norm=norm("ffn_norm"),
        output_norm=norm("output_norm"),
        token_map=_TOKEN_MAP if maps else None,
    )


def _target_layers(h: Hyperparameters) -> tuple[int, ...]:
    """The layers of the target whose input is read."""
    for key in _LAYERS:
        listed = h.metadata.get(f"{h.architecture}.{key}")
        if isinstance(listed, np.ndarray) and listed.dtype.kind in "iu" and len(listed):
            return tuple(map(int, listed))
    raise ModelError(
        f"{h.architecture}.{_LAYERS[0]} is missing or no list of numbers: it must say which layers "
        "of the target the draft reads"
    )
