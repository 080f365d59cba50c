"""An indexer as operations: which positions each token of a sparse attention sees.

A layer's normed stream and what its query is made of come in; the chosen positions go out. Keys of
the indexer are kept in a layer of the cache of their own: one for all heads, without values. That
is a layer of latents whose values nobody reads, the elements that are not rotated.
"""

from ingot.graph import KvLayer
from ingot.graph import ops as o
from ingot.models.builder import Builder
from ingot.models.spec import IndexerSpec


def add_indexer(build: Builder, x: o.Value, short: o.Value, spec: IndexerSpec) -> o.Value:
    """Write an indexer down."""
    query = build.linear(short, "indexer.attn_q_b", spec.heads * spec.size)
    query = build.rope(query, spec.rope, spec.size)
    key = build.norm(build.linear(x, "indexer.attn_k", spec.size), spec.key_norm)
    kept = spec.size - spec.rotary
    rest = build.pick_heads(key, "indexer.k_rest", 1, spec.rotary, kept)
    key = build.pick_heads(key, "indexer.k_rotary", 1, 0, spec.rotary)
    key = build.rope(key, spec.rope, spec.rotary)
    weights = build.linear(x, "indexer.proj", spec.heads)
    kv_layer = build.new_kv_layer(KvLayer(1, spec.size, 0, shared_value=kept))
    build.append(o.WriteKv(key=key, value=rest, kv_layer=kv_layer, shared=True))
    chosen = build.value("indexer.chosen", spec.count)
    build.append(
        o.ChoosePositions(
            query=query, head_weights=weights, out=chosen, kv_layer=kv_layer, heads=spec.heads
        )
    )
    return chosen
