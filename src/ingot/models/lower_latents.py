"""Multi-head latent attention as operations.

A layer's normed stream comes in; the rows that its output matrix takes go out. The matrices that
make keys and values of a latent are applied to the query and to the mixed latents instead, so a
layer of the cache holds one key for all heads, and its value is the last part of it. The attention
knows these matrices too: a backend may expand the latents of a prompt.
"""

from ingot.graph import KvLayer
from ingot.graph import ops as o
from ingot.models.builder import Builder
from ingot.models.lower_indexer import add_indexer
from ingot.models.spec import LatentSpec


def add_latents(build: Builder, x: o.Value, spec: LatentSpec) -> o.Value:
    """Write an attention over latents down."""
    short, query = _query(build, x, spec)
    if spec.indexer and not spec.indexer.shared:
        build.chosen = add_indexer(build, x, short, spec.indexer)
    rows = spec.latent + spec.rotary
    latent, key = (
        build.linear(x, name, width, fused=("attn_kv_a_mqa", first, rows))
        for name, width, first in (
            ("attn_latent", spec.latent, 0),
            ("attn_k_rotary", spec.rotary, spec.latent),
        )
    )
    latent = build.norm(latent, spec.latent_norm)
    query = _map_heads(build, query, "attn_k_b", spec)
    if spec.temper:
        query = build.temper(query, spec.temper)
    size = spec.rotary + spec.latent
    query = build.rope(query, spec.rope, size)
    key = build.rope(key, spec.rope, spec.rotary)
    kv_layer = build.new_kv_layer(KvLayer(1, size, 0, shared_value=spec.latent))
    build.append(o.WriteKv(key=key, value=latent, kv_layer=kv_layer, shared=True))
    mixed = build.value("attention", spec.heads * spec.latent)
    build.append(
        o.Attend(
            query=query,
            chosen=build.chosen if spec.indexer else None,
            out=mixed,
            kv_layer=kv_layer,
            heads=spec.heads,
            kv_heads=1,
            scale=spec.scale,
            expansion=_expansion(build, spec),
        )
    )
    return _map_heads(build, mixed, "attn_v_b", spec)


def _query(build: Builder, x: o.Value, spec: LatentSpec) -> tuple[o.Value, o.Value]:
    """What the query is made of, and the query."""
    width = spec.heads * (spec.key_size + spec.rotary)
    if not spec.query_rank:
        return x, build.linear(x, "attn_q", width)
    short = build.linear(x, "attn_q_a", spec.query_rank)
    short = build.optional_norm(short, spec.query_norm)
    return short, build.linear(short, "attn_q_b", width)


def _matrix(build: Builder, name: str, spec: LatentSpec) -> o.HeadMatrix:
    """What is applied to queries (attn_k_b), or to mixed latents (attn_v_b)."""
    keys = name == "attn_k_b"
    if spec.fused:
        rows = spec.heads * (spec.key_size + spec.value_size)
        weight = build.weight("attn_kv_b.weight", rows, spec.latent)
        first, rows = (0, spec.key_size) if keys else (spec.key_size, spec.value_size)
        return o.HeadMatrix(weight=weight, first=first, rows=rows)
    shape = (spec.latent, spec.key_size) if keys else (spec.value_size, spec.latent)
    weight = build.weight(f"{name}.weight", spec.heads, *shape)
    return o.HeadMatrix(weight=weight, first=0, rows=shape[0])


def _expansion(build: Builder, spec: LatentSpec) -> o.Expansion | None:
    """None: keys or values are longer than latents, or tokens see other positions each."""
    if max(spec.key_size, spec.value_size) > spec.latent or spec.indexer:
        return None
    key, value = (_matrix(build, name, spec) for name in ("attn_k_b", "attn_v_b"))
    return o.Expansion(key=key, value=value, latent_rows=not spec.fused)


def _map_heads(build: Builder, source: o.Value, name: str, spec: LatentSpec) -> o.Value:
    """Queries to the space of latents (attn_k_b), or mixed latents to values (attn_v_b)."""
    keys, matrix = name == "attn_k_b", _matrix(build, name, spec)
    made = spec.rotary + spec.latent if keys else spec.value_size
    out = build.value(f"{name}.heads", spec.heads * made)
    build.append(
        o.HeadLinear(
            source=source,
            out=out,
            weight=matrix.weight,
            heads=spec.heads,
            first=matrix.first,
            rows=matrix.rows,
            transposed=spec.fused and keys,
            expandable=_expansion(build, spec) is not None,
        )
    )
    return out
