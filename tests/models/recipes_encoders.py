"""Recipes of encoders (see recipes.py): what comes out is a hidden row for every token."""

from models.recipe import Recipe

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

ENCODERS: dict[str, Recipe] = {
    "bert": Recipe(
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
