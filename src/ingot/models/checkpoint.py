"""How `transformers` stores the models of an architecture: the names of both sides, once.

An architecture file with a `CHECKPOINT` can be converted to GGUF (`ingot.convert`). It states what
is special; the names that most architectures share are here. On the left is the name in
`transformers`, on the right the name in a GGUF file. A name without `.weight` or `.bias` stands for
both. `{}` is a number other than that of the layer: the tensors of all numbers are stacked. Several
names with the same right side are joined, row after row, in the order in which they are stated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Floats
from ingot.models.settings import Settings

Order = NDArray[np.int64]  # numbers of rows
Pick = Callable[[int, Settings], Sequence[Order]]
Value = bool | int | float | str | list[str] | list[int] | None


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor whose rows have another order in the file, or belong to several tensors there.

    `pick(rows, settings)` gives, for each of the names, the numbers of its rows.
    """

    names: tuple[str, ...]
    pick: Pick


Place = str | Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The stored form of an architecture."""

    models: tuple[str, ...]  # classes, as in `architectures` of config.json
    layers: str = "model.layers"  # the layer's number follows
    names: Mapping[str, Place] = field(default_factory=dict)  # in a layer, beyond the shared ones
    outer: Mapping[str, Place] = field(default_factory=dict)  # outside of layers
    prefixes: tuple[str, ...] = ()  # of all names, in some classes
    ignored: tuple[str, ...] = ()  # endings of tensors that a file does not need
    transposed: tuple[str, ...] = ()  # stored names of weights with input before output
    values: Mapping[str, Callable[[Floats], Floats]] = field(default_factory=dict)
    # arithmetic, by the end of the file's name
    shapes: Mapping[str, Callable[[tuple[int, ...], Settings], tuple[int, ...]]] = field(
        default_factory=dict
    )  # by the end of the file's name
    keys: Callable[[Settings], Mapping[str, Value]] = lambda _: {}
    # beyond the usual ones, or None for a key that is not written
    defaults: Mapping[str, Any] = field(default_factory=dict)  # settings that hub files leave out

    def place(self, name: str) -> Place | None:
        """The name in the file of a tensor in a layer; None if it is not known."""
        return self.names.get(name, LAYER_NAMES.get(name))

    def outer_place(self, name: str) -> Place | None:
        """The same outside of layers."""
        return self.outer.get(name, OUTER_NAMES.get(name))

    def rank(self, name: str) -> int:
        """The position of a name among those that are joined to one tensor."""
        return list(self.names).index(name) if name in self.names else 0


def in_order(order: Callable[[int, Settings], Order], name: str) -> Rows:
    """All rows of a tensor, in another order."""
    return Rows((name,), lambda rows, settings: [order(rows, settings)])


def halves(rows: int, _: Settings) -> Sequence[Order]:
    """The first and the second half of the rows."""
    return np.split(np.arange(rows), 2)


def alternating(rows: int, _: Settings) -> Sequence[Order]:
    """The even and the odd rows."""
    return [np.arange(0, rows, 2), np.arange(1, rows, 2)]


def interleaved(rows: int, heads: int) -> Order:
    """RoPE's interleaved layout: the two elements that are rotated together become neighbours."""
    return np.arange(rows).reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)


def grouped(rows: int, heads: int, kv_heads: int) -> tuple[Order, Order, Order]:
    """Query, key and value rows of a tensor that stores them by key head."""
    groups = np.arange(rows).reshape(kv_heads, heads // kv_heads + 2, -1)
    query, key, value = np.split(groups, [-2, -1], axis=1)
    return query.reshape(-1), key.reshape(-1), value.reshape(-1)


# What models with interleaved RoPE store in the half-split layout.
INTERLEAVED: Mapping[str, Place] = {
    "self_attn.q_proj": in_order(lambda rows, s: interleaved(rows, s.heads), "attn_q"),
    "self_attn.k_proj": in_order(lambda rows, s: interleaved(rows, s.kv_heads), "attn_k"),
}
# Norms whose weight is stored as its difference from one.
ONE_MORE: Mapping[str, Callable[[Floats], Floats]] = {"norm.weight": lambda w: w + np.float32(1)}
# Norms before and after each block.
PRE_AND_POST_NORMS: Mapping[str, Place] = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
OUTER_NAMES: Mapping[str, str] = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
LAYER_NAMES: Mapping[str, str] = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.experts.{}.gate_proj": "ffn_gate_exps",
    "mlp.experts.{}.up_proj": "ffn_up_exps",
    "mlp.experts.{}.down_proj": "ffn_down_exps",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias",
    "block_sparse_moe.experts.{}.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.{}.w2": "ffn_down_exps",
    "block_sparse_moe.experts.{}.w3": "ffn_up_exps",
}
# Encoders.
EMBEDDINGS: Mapping[str, Place] = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
}
RANK = 4  # the pooling type of a model that scores texts
# State spaces.
BACKBONE: Mapping[str, Place] = {
    "backbone.embeddings": "token_embd",
    "backbone.norm_f": "output_norm",
}
STATE_SPACE: Mapping[str, Place] = {
    "norm": "attn_norm",
    "mixer.in_proj": "ssm_in",
    "mixer.conv1d": "ssm_conv1d",
    "mixer.A_log": "ssm_a",
    "mixer.D": "ssm_d",
    "mixer.out_proj": "ssm_out",
}
DECAY: Mapping[str, Callable[[Floats], Floats]] = {"ssm_a": lambda a: -np.exp(a)}
CONVOLUTION: Mapping[str, Callable[[tuple[int, ...], Settings], tuple[int, ...]]] = {
    "ssm_conv1d.weight": lambda shape, _: (shape[0], shape[-1])
}


def window_key(s: Settings) -> Mapping[str, Value]:
    """The sliding window; 0 if there is none."""
    return {"attention.sliding_window": s.integer("sliding_window", default=0)}


def encoder_keys(s: Settings) -> Mapping[str, Value]:
    """What all encoders state."""
    return {
        "attention.causal": False,
        "tokenizer.ggml.token_type_count": s.integer("type_vocab_size", default=0) or None,
    }


def state_space_keys(s: Settings) -> Mapping[str, Value]:
    """What all models with a state space state."""
    return {
        "attention.head_count": 0,
        "feed_forward_length": 0,
        "attention.layer_norm_epsilon": None,
        "attention.layer_norm_rms_epsilon": s.number("layer_norm_epsilon"),
        "ssm.conv_kernel": s.integer("conv_kernel"),
        "ssm.inner_size": s.integer("intermediate_size", default=s.integer("expand") * s.width),
        "ssm.state_size": s.integer("state_size"),
    }
