"""Recipes of encoders (see recipes.py): what comes out is a hidden row for every token."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from models.alibi import add_alibi
from models.recipe import Joined, Recipe, changed
from models.recipes_encoder_decoders import T5_ENCODER

SIZES = {
    "hidden_size": 60,
    "intermediate_size": 90,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
}
EMBEDDINGS = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}

BERT = Recipe(
    architecture="bert",
    model="BertModel",
    config=SIZES,
    metadata=lambda c: {
        "attention.causal": False,
        "pooling_type": 2,
        "tokenizer.ggml.token_type_count": c.type_vocab_size,
    },
    names={
        **EMBEDDINGS,
        "embeddings.position_embeddings": "position_embd",
        "encoder.layer.": "blk.",
        "attention.self.query": "attn_q",
        "attention.self.key": "attn_k",
        "attention.self.value": "attn_v",
        "attention.output.dense": "attn_output",
        "attention.output.LayerNorm": "attn_output_norm",
        "intermediate.dense": "ffn_up",
        "output.dense": "ffn_down",
        "output.LayerNorm": "layer_output_norm",
    },
    encoder=True,
)
# Its positions begin after those of the padding; converters leave out the rows before.
UNUSED_POSITIONS = 2
ROBERTA = replace(
    changed(
        BERT,
        {
            "max_position_embeddings": 256 + UNUSED_POSITIONS,
            "pad_token_id": UNUSED_POSITIONS - 1,
            "type_vocab_size": 1,
        },
    ),
    model="RobertaModel",
    metadata=lambda c: {
        **BERT.metadata(c),
        "context_length": c.max_position_embeddings - UNUSED_POSITIONS,
    },
    joined={
        "embeddings.position_embeddings.weight": Joined(
            ("position_embd.weight",),
            lambda rows, columns: (rows - UNUSED_POSITIONS, columns),
            lambda used: np.concatenate([np.full_like(used[:UNUSED_POSITIONS], 9), used]),
        )
    },
)

WINDOW = 10  # tokens: half of them on either side


def with_experts(model: Any) -> None:
    """Give every other layer experts, which transformers has in no encoder."""
    torch: Any = import_module("torch")

    class Experts(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, count: int, width: int, inner: int) -> None:
            super().__init__()
            self.gate = torch.nn.Linear(width, count, bias=False)
            self.up = torch.nn.Parameter(torch.empty(count, inner, width))
            self.down = torch.nn.Parameter(torch.empty(count, width, inner))

        def forward(self, x: Any) -> Any:
            weights, chosen = self.gate(x).softmax(-1).topk(2)
            inner = torch.einsum("btw,btkiw->btki", x, self.up[chosen])
            made = torch.einsum(
                "btki,btkwi->btkw", torch.nn.functional.gelu(inner), self.down[chosen]
            )
            return (made * weights[..., None]).sum(-2)

    for layer in model.layers[1::2]:
        layer.mlp = Experts(5, *reversed(layer.mlp.fc1.weight.shape)).double()


def with_alibi_and_gate(model: Any) -> None:
    """What BERT lacks of Jina's second encoder: a penalty for distances, and a gate."""
    torch: Any = import_module("torch")

    class Gated(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, width: int, inner: int) -> None:
            super().__init__()
            self.both = torch.nn.Linear(width, 2 * inner, bias=False)

        def forward(self, x: Any) -> Any:
            gate, up = self.both(x).chunk(2, dim=-1)
            return torch.nn.functional.gelu(gate) * up

    def again(layer: Any) -> Any:
        """The attention of a model for code: its input once more, and another norm."""
        attend = layer.attention.forward

        def forward(states: Any, *rest: Any, **others: Any) -> Any:
            made, *weights = attend(states, *rest, **others)
            return (layer.attention.layer_norm_1(made + states), *weights)

        return forward

    width = model.config.hidden_size
    torch.nn.init.zeros_(model.embeddings.position_embeddings.weight)
    for layer in model.encoder.layer:
        layer.intermediate = Gated(width, model.config.intermediate_size).double()
        own = layer.attention.self
        add_alibi(own, model.config.num_attention_heads)
        if model.config.model_for_code:
            for name, matrix in (("q", "query"), ("k", "key")):
                norm = torch.nn.LayerNorm(width, eps=model.config.layer_norm_eps).double()
                setattr(own, f"layer_norm_{name}", norm)
                plain = getattr(own, matrix)
                plain.register_forward_hook(lambda _, __, out, norm=norm: norm(out))
            norm = torch.nn.LayerNorm(width, eps=model.config.layer_norm_eps).double()
            layer.attention.layer_norm_1 = norm
            layer.attention.forward = again(layer)


JINA_V2 = replace(
    changed(BERT, {"model_for_code": False}),
    architecture="jina-bert-v2",
    metadata=lambda c: {**BERT.metadata(c), "pooling_type": 1},
    names={
        **BERT.names,
        "intermediate.both": "ffn_up",
        "attention.self.layer_norm_q": "attn_q_norm",
        "attention.self.layer_norm_k": "attn_k_norm",
        "attention.layer_norm_1": "attn_norm_2",
    },
    left_out=("position_embeddings",),
    adjust=with_alibi_and_gate,
)

ENCODERS: dict[str, Recipe] = {
    "t5encoder": T5_ENCODER,
    "jina-bert-v2": JINA_V2,
    "jina-bert-v2-code": changed(JINA_V2, {"model_for_code": True}),
    # As converters wrote it once: the gate is a tensor of its own.
    "jina-bert-v2-split": replace(
        JINA_V2,
        joined={
            "intermediate.both.weight": Joined(
                ("ffn_gate.weight", "ffn_up.weight"),
                lambda rows, columns: (rows // 2, columns),
                lambda gate, up: np.concatenate([gate, up]),
            )
        },
    ),
    "modern-bert": Recipe(
        architecture="modern-bert",
        model="ModernBertModel",
        config={
            **SIZES,
            "num_hidden_layers": 4,
            "local_attention": WINDOW,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
        metadata=lambda c: {
            "attention.causal": False,
            "attention.sliding_window": WINDOW,
            "attention.sliding_window_pattern": 3,
            "rope.freq_base_swa": 10000.0,
            "pooling_type": 1,
            "attention.layer_norm_epsilon": c.norm_eps,
        },
        names={
            "embeddings.tok_embeddings": "token_embd",
            "embeddings.norm": "token_embd_norm",
            "final_norm": "output_norm",
            "attn.Wqkv": "attn_qkv",
            "attn.Wo": "attn_output",
            "mlp_norm": "ffn_norm",
            "mlp.Wi": "ffn_up",
            "mlp.Wo": "ffn_down",
        },
        encoder=True,
    ),
    "gemma-embedding": Recipe(
        architecture="gemma-embedding",
        model="Gemma3TextModel",
        config={
            **SIZES,
            "num_hidden_layers": 7,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "head_dim": 20,
            "query_pre_attn_scalar": 20,
            "sliding_window": WINDOW,
            "use_bidirectional_attention": True,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
        metadata=lambda _: {"attention.sliding_window": WINDOW, "pooling_type": 1},
        names={
            "post_attention_layernorm": "post_attention_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
        },
        transforms={"norm.weight": lambda w, _: w - 1},
        encoder=True,
    ),
    "bert": BERT,
    "bert-rank": replace(
        changed(BERT, {"num_labels": 1}),
        model="BertForSequenceClassification",
        metadata=lambda c: {**BERT.metadata(c), "pooling_type": 4},
        names={
            "bert.": "",
            "pooler.dense": "cls",
            "classifier": "cls.output",
            **BERT.names,
        },
        encoder=False,
        ranker=True,
    ),
    "bert-roberta": ROBERTA,
    "bert-roberta-rank": replace(
        changed(ROBERTA, {"num_labels": 1}),
        model="RobertaForSequenceClassification",
        metadata=lambda c: {**ROBERTA.metadata(c), "pooling_type": 4},
        names={
            "roberta.": "",
            **ROBERTA.names,
            "classifier.dense": "cls",
            "classifier.out_proj": "cls.output",
        },
        encoder=False,
        ranker=True,
    ),
    "jina-bert-v3": Recipe(
        architecture="jina-bert-v3",
        model="JinaEmbeddingsV3Model",
        config={
            **SIZES,
            "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
        },
        metadata=lambda c: {
            "attention.causal": False,
            "pooling_type": 1,
            "tokenizer.ggml.token_type_count": c.type_vocab_size,
        },
        names={
            **EMBEDDINGS,
            **{f"attn_{which}": "attn_qkv" for which in "qkv"},
            "mlp.fc1": "ffn_up",
            "mlp.fc2": "ffn_down",
            "ffn_norm": "attn_output_norm",
            "post_mlp_layernorm": "layer_output_norm",
        },
        encoder=True,
    ),
    "nomic-bert-moe": Recipe(
        architecture="nomic-bert-moe",
        model="JinaEmbeddingsV3Model",
        config={
            **SIZES,
            "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        metadata=lambda c: {
            "attention.causal": False,
            "pooling_type": 1,
            "tokenizer.ggml.token_type_count": c.type_vocab_size,
            "moe_every_n_layers": 2,
            "expert_count": 5,
            "expert_used_count": 2,
        },
        names={
            **EMBEDDINGS,
            **{f"attn_{which}": "attn_qkv" for which in "qkv"},
            "mlp.fc1": "ffn_up",
            "mlp.fc2": "ffn_down",
            "mlp.gate.": "ffn_gate_inp.",
            "mlp.up": "ffn_up_exps.weight",
            "mlp.down": "ffn_down_exps.weight",
            "ffn_norm": "attn_output_norm",
            "post_mlp_layernorm": "layer_output_norm",
        },
        adjust=with_experts,
        encoder=True,
    ),
    "nomic-bert": Recipe(
        architecture="nomic-bert",
        model="NomicBertModel",
        config={
            **SIZES,
            "head_dim": 12,
            "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
        },
        metadata=lambda c: {
            "attention.causal": False,
            "pooling_type": 1,
            "tokenizer.ggml.token_type_count": c.type_vocab_size,
        },
        names={
            **EMBEDDINGS,
            "attn_q": "attn_qkv",
            "attn_k": "attn_qkv",
            "attn_v": "attn_qkv",
            "ffn_norm": "attn_output_norm",
            "post_mlp_layernorm": "layer_output_norm",
        },
        encoder=True,
    ),
}
