"""How `transformers` stores the models of an architecture: the names of both sides, once.

An architecture file with `CHECKPOINTS` can be converted to GGUF (`ingot.convert`). It states what
is special; the names that most architectures share are here, and parts that some share are in
`checkpoint_parts.py`. On the left is the name in `transformers`, on the right the name in a GGUF
file. A name without `.weight` or `.bias` stands for both. `{}` is a number other than that of the
layer: the tensors of all numbers are stacked; a number that is stated is part of the name. Several
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
Shape = tuple[int, ...]
Value = bool | int | float | str | Sequence[str] | Sequence[int] | Sequence[float] | None


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor whose rows have another order in the file, or belong to several tensors there.

    `pick(rows, settings)` gives, for each of the names, the numbers of its rows.
    """

    names: tuple[str, ...]
    pick: Pick


@dataclass(frozen=True, slots=True)
class Number:
    """A number of each layer that is stored as a tensor, and is a key of the file."""

    key: str  # without the architecture's name in front


Place = str | Rows | Number


@dataclass(frozen=True, slots=True)
class Stack:
    """Layers that follow each other, and the names in them beyond the shared ones."""

    layers: str  # the layer's number follows
    file_layers: str  # the same in the file
    names: Mapping[str, Place]

    def place(self, name: str) -> Place | None:
        """The name in the file of a tensor in a layer; None if it is not known."""
        return self.names.get(name, LAYER_NAMES.get(name))

    def rank(self, name: str) -> int:
        """The position of a name among those that are joined to one tensor."""
        return list(self.names).index(name) if name in self.names else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The stored form of an architecture.

    What is done to tensors goes by the end of the file's name; the first that fits counts.
    """

    models: tuple[str, ...]  # classes, as in `architectures` of config.json
    accepts: Callable[[Settings], bool] = lambda _: True  # if other forms have the same classes
    layers: str = "model.layers"  # the layer's number follows
    file_layers: str = "blk"  # the same in the file
    decoder: Stack | None = None  # if those are of an encoder: the layers that write
    mtp_layers: str | None = None  # where those for multi-token prediction are, if not after them
    names: Mapping[str, Place] = field(default_factory=dict)  # in a layer, beyond the shared ones
    outer: Mapping[str, Place] = field(default_factory=dict)  # outside of layers
    prefixes: tuple[str, ...] = ()  # of all names, in some classes
    ignored: tuple[str, ...] = ()  # endings of tensors that a file does not need
    own_output: Callable[[Settings], bool] | None = None
    # whether the file must have an output matrix; None: it has the stored one if it is not tied
    transposed: tuple[str, ...] = ()  # stored names of weights with input before output
    inputs: Mapping[str, Callable[[Settings], int]] = field(default_factory=dict)
    # of weights that some checkpoints store so, by stored names: those with other columns are
    values: Mapping[str, Callable[[Floats], Floats]] = field(default_factory=dict)  # arithmetic
    ternary: tuple[str, ...] = ()  # rounded to three values
    factors: Mapping[str, Callable[[int, Settings], Floats]] = field(default_factory=dict)
    # of so many stored rows, each multiplied by one
    columns: Mapping[str, Callable[[int, Settings], Order]] = field(default_factory=dict)
    # the numbers of so many columns, in the order of the file
    blocks: Mapping[str, Callable[[Settings], int]] = field(default_factory=dict)
    # rows of a block; each block is transposed
    least_rows: Mapping[str, Callable[[Settings], int]] = field(default_factory=dict)
    # zeros take the place of missing ones
    shapes: Mapping[str, Callable[[Shape, Settings], Shape]] = field(default_factory=dict)
    keys: Callable[[Settings], Mapping[str, Value]] = lambda _: {}
    # beyond the usual ones, or None for a key that is not written
    defaults: Mapping[str, Any] = field(default_factory=dict)  # settings that hub files leave out
    merged_characters: str | None = None  # what files call a vocabulary that merges characters
    shown_tokens: tuple[str, ...] = ()  # special ones that replies show

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """All layers."""
        first = Stack(self.layers, self.file_layers, self.names)
        return (first,) if self.decoder is None else (first, self.decoder)

    def outer_place(self, name: str) -> Place | None:
        """The name in the file of a tensor outside of layers; None if it is not known."""
        return self.outer.get(name, OUTER_NAMES.get(name))

    def drops_output(self, settings: Settings) -> bool:
        """Whether the file has no output matrix, even if one is stored."""
        if self.own_output is not None:
            return not self.own_output(settings)
        return settings.boolean("tie_word_embeddings", False)


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
OUTER_NAMES: Mapping[str, Place] = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
LAYER_NAMES: Mapping[str, Place] = {
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
    "mlp.experts.gate_up_proj": Rows(("ffn_gate_exps.weight", "ffn_up_exps.weight"), halves),
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    # Modules of experts that files store under other names; adapters have these.
    "feed_forward.experts.gate_up_proj": Rows(
        ("ffn_gate_exps.weight", "ffn_up_exps.weight"), halves
    ),
    "feed_forward.experts.down_proj": "ffn_down_exps.weight",
    "mixer.experts.up_proj": "ffn_up_exps.weight",
    "mixer.experts.down_proj": "ffn_down_exps.weight",
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
    # Layers for multi-token prediction.
    "eh_proj": "nextn.eh_proj",
    "enorm": "nextn.enorm",
    "hnorm": "nextn.hnorm",
    "embed_tokens": "nextn.embed_tokens",
    "shared_head.head": "nextn.shared_head_head",
    "shared_head.norm": "nextn.shared_head_norm",
}


def window_key(s: Settings) -> Mapping[str, Value]:
    """The sliding window; 0 if there is none."""
    return {"attention.sliding_window": s.integer("sliding_window", default=0)}
