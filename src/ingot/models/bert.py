"""BERT (encoder): bidirectional attention, learned positions, token types, post-norm layer norms;
with a ranking head, a reranker."""

from collections.abc import Mapping

import numpy as np

from ingot.graph.ops import Activation
from ingot.models.checkpoint import Checkpoint, Place, Value, in_order
from ingot.models.checkpoint_parts import (
    EMBEDDINGS,
    ENCODER_ATTENTION,
    RANK,
    UNUSED_BY_EMBEDDERS,
    encoder_keys,
)
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import post_norm_encoder
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, MlpSpec, Network

_LAYER: Mapping[str, Place] = {
    **ENCODER_ATTENTION,
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_EMBEDDINGS: Mapping[str, Place] = {
    **EMBEDDINGS,
    "embeddings.position_embeddings": "position_embd",
    "embeddings.LayerNorm": "token_embd_norm",
}
_UNUSED_POSITIONS = 2  # RoBERTa numbers positions from here
_ROBERTA: Mapping[str, Place] = {
    **_EMBEDDINGS,
    "embeddings.position_embeddings": in_order(
        lambda rows, _: np.arange(_UNUSED_POSITIONS, rows), "position_embd"
    ),
}


def _roberta_keys(s: Settings) -> Mapping[str, Value]:
    context = s.integer("max_position_embeddings") - _UNUSED_POSITIONS
    return {**encoder_keys(s), "context_length": context}


def _ranker_keys(s: Settings) -> Mapping[str, Value]:
    return {**encoder_keys(s), "pooling_type": RANK}


def _roberta_ranker_keys(s: Settings) -> Mapping[str, Value]:
    return {**_roberta_keys(s), "pooling_type": RANK}


CHECKPOINTS = (
    Checkpoint(
        models=("BertModel", "BertForMaskedLM"),
        layers="encoder.layer",
        names=_LAYER,
        outer=_EMBEDDINGS,
        prefixes=("bert.",),
        ignored=UNUSED_BY_EMBEDDERS,
        keys=encoder_keys,
    ),
    Checkpoint(
        models=("BertForSequenceClassification",),
        layers="encoder.layer",
        names=_LAYER,
        outer={**_EMBEDDINGS, "pooler.dense": "cls", "classifier": "cls.output"},
        prefixes=("bert.",),
        ignored=("embeddings.position_ids",),
        keys=_ranker_keys,
    ),
    Checkpoint(
        models=("RobertaModel", "XLMRobertaModel"),
        layers="encoder.layer",
        names=_LAYER,
        outer=_ROBERTA,
        prefixes=("roberta.",),
        ignored=("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"),
        keys=_roberta_keys,
    ),
    Checkpoint(
        models=("RobertaForSequenceClassification", "XLMRobertaForSequenceClassification"),
        layers="encoder.layer",
        names=_LAYER,
        outer={**_ROBERTA, "classifier.dense": "cls", "classifier.out_proj": "cls.output"},
        prefixes=("roberta.",),
        ignored=("embeddings.position_ids",),
        keys=_roberta_ranker_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    mlp = MlpSpec(
        width=h.size("feed_forward_length"), activation=Activation.GELU, gated=False, bias=True
    )
    return post_norm_encoder(
        h,
        lambda kv_heads: AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=None,
            qkv_bias=True,
            output_bias=True,
            causal=False,
        ),
        [mlp] * h.layers,
        learned_positions=True,
    )
