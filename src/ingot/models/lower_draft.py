"""A draft as operations: what fuses hidden states of the target, and the layer that continues.

A `DraftSpec` comes in; two graphs go out. The first takes rows of the target's hidden states, side
by side. The second takes rows of the draft's own: the embedding of a token and the hidden state
before it, each after its norm, and the hidden state that the layer adds to, if that is another one.
"""

from dataclasses import dataclass

from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.models.lower import Blocks
from ingot.models.spec import DraftSpec, LayerSpec


@dataclass(frozen=True, slots=True)
class DraftGraphs:
    """What a draft runs."""

    fuse: ComputationGraph  # from hidden states of the target to one of the draft
    layer: ComputationGraph  # from rows of the draft to logits of the tokens that it can guess
    hidden: o.Value  # of `layer`: the hidden state with which it continues from its own guess


def lower_draft(spec: DraftSpec) -> DraftGraphs:
    """Write a draft down as operations."""
    layer, hidden = _layer(spec)
    return DraftGraphs(_fuse(spec), layer, hidden)


def _fuse(spec: DraftSpec) -> ComputationGraph:
    build = Blocks()
    rows = o.Value("target", len(spec.target_layers) * spec.target_width)
    build.append(o.TakeRows(out=rows))
    normed = build.optional_norm(build.select(rows), spec.target_norm)
    fused = build.linear(normed, "fc", spec.width)
    return ComputationGraph(
        ops=tuple(build.ops),
        logits=fused,
        kv_layers=(),
        context_length=spec.context_length,
        hidden=True,
    )


def _layer(spec: DraftSpec) -> tuple[ComputationGraph, o.Value]:
    build, width = Blocks(layer=0), spec.width
    parts = LayerSpec(
        attention=spec.attention,
        attention_norm=None,
        mlp=spec.mlp,
        mlp_norm=spec.mlp_norm,
    )
    joined = build.value("joined", (2 if spec.adds_to_normed else 3) * width)
    build.append(o.TakeRows(out=joined))
    stream = build.pick_heads(joined, "hidden", 1, joined.width - width, width)
    seen = joined
    if not spec.adds_to_normed:
        seen = build.pick_heads(joined, "attn_input", 1, 0, 2 * width)
    mixed = build.select(build.attention(seen, spec.attention))
    stream = build.join(build.select(stream), mixed, spec.attention, parts)
    hidden = build.feed_forward(stream, build.norm(stream, spec.mlp_norm), spec.mlp, parts)
    build.layer = None
    logits = build.linear(build.norm(hidden, spec.output_norm), "output", spec.outputs)
    graph = ComputationGraph(
        ops=tuple(build.ops),
        logits=logits,
        kv_layers=tuple(build.kv_layers),
        context_length=spec.context_length,
    )
    return graph, hidden
