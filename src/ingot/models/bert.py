"""BERT (encoder): bidirectional attention, learned positions, token types, post-norm layer norms;
with a ranking head, a reranker."""

from collections.abc import Mapping

import numpy as np

from ingot.graph.ops import Activation, NormKind
from ingot.models.checkpoint import (
    EMBEDDINGS,
    RANK,
    Checkpoint,
    Place,
    Value,
    encoder_keys,
    in_order,
)
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

_LAYER: Mapping[str, Place] = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
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
        ignored=("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"),
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
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER, bias=True)

    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=None,
                qkv_bias=True,
                output_bias=True,
                causal=False,
            ),
            attention_norm=None,
            attention_stream_norm=norm("attn_output_norm"),
            mlp=MlpSpec(
                width=h.size("feed_forward_length"),
                activation=Activation.GELU,
                gated=False,
                bias=True,
            ),
            mlp_norm=None,
            mlp_stream_norm=norm("layer_output_norm"),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=None,
        learned_positions=True,
        token_types=h.token_types,
        embedding_norm=norm("token_embd_norm"),
        logits=False,
        head=h.head(),
    )
