"""T5, Flan-T5, mT5 and UMT5 (encoder-decoder): the prompt is read both ways, and every layer of the
decoder attends to it; relative position buckets, RMS norms, GELU with a gate or ReLU without."""

from dataclasses import replace

from ingot.models.checkpoint import Checkpoint, Stack
from ingot.models.checkpoint_relative import (
    COPIES,
    DECODER,
    DEFAULTS,
    ENCODER,
    OUTER,
    can_be_stated,
    relative_decoder_keys,
    scales_output,
)
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import relative_encoder, relative_layers
from ingot.models.spec import Network, NormSpec

_T5 = Checkpoint(
    models=("T5ForConditionalGeneration", "T5WithLMHeadModel", "UMT5ForConditionalGeneration"),
    accepts=can_be_stated,
    layers="encoder.block",
    file_layers="enc.blk",
    decoder=Stack("decoder.block", "dec.blk", DECODER),
    names=ENCODER,
    outer={**OUTER, "decoder.final_layer_norm": "dec.output_norm"},
    ignored=(*COPIES, "EncDecAttention.relative_attention_bias.weight"),
    own_output=lambda s: not scales_output(s),
    keys=relative_decoder_keys,
    defaults=DEFAULTS,
)

CHECKPOINTS = (
    _T5,
    # Its logits are never scaled, whatever the settings say.
    replace(_T5, models=("MT5ForConditionalGeneration",), own_output=lambda _: True),
)


def network(h: Hyperparameters) -> Network:
    decoders = h.size("decoder_block_count", h.layers, most=len(h.tensors))
    context = 2 * h.context_length  # of a prompt and of what is written; distances have no limit
    own_output = h.has_tensor("output.weight")
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=context,
        layers=relative_layers(h, "dec.", decoders, decoder=True),
        output_norm=NormSpec("dec.output_norm", h.rms_epsilon),
        logit_scale=1.0 if own_output else h.width**-0.5,
        stack="dec.",
        encoder=relative_encoder(h, context),
        start_token=h.index("decoder_start_token_id", h.vocabulary),
        # In some files; no implementation reads it.
        unread=("dec.blk.0.cross_attn_rel_b.weight",),
    )
