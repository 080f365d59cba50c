"""Cross attention of a decoder: keys and values are an encoder's last rows, stored once.

The encoder's graph ends with `write_cross`; every layer of the decoder has `add_cross`.
"""

from ingot.graph import KvLayer
from ingot.graph import ops as o
from ingot.graph.ops.record import layer_prefix
from ingot.models.builder import Builder
from ingot.models.spec import CrossSpec


def add_cross(build: Builder, stream: o.Value, spec: CrossSpec, *, last: bool) -> o.Value:
    """What a token sees of the encoder's rows joins the stream."""
    build.kv_layers.append(KvLayer(spec.heads, spec.head_size, 0))
    number = len(build.kv_layers) - 1
    if build.layer is not None:
        build.cross_layer_of[build.layer] = number
    query = build.linear(build.norm(stream, spec.norm), "cross_attn_q", spec.heads * spec.head_size)
    mixed = build.value("cross_attention", query.width)
    build.append(
        o.Attend(
            query=query,
            out=mixed,
            kv_layer=number,
            heads=spec.heads,
            kv_heads=spec.heads,
            scale=spec.scale,
            seen=o.SeenPart.ENCODED,
        )
    )
    if last:  # nobody looks at the other tokens of the last layer any more
        mixed, stream = build.select(mixed), build.select(stream)
    return build.add(stream, build.linear(mixed, "cross_attn_o", stream.width), "cross_residual")


def write_cross(build: Builder, rows: o.Value, decoder: Builder) -> None:
    """Keys and values of an encoder's rows, for every layer of its decoder."""
    for layer, number in decoder.cross_layer_of.items():
        prefix, width = layer_prefix(layer, decoder.stack), build.kv_layers[number].key_width
        key, value = (o.Value(f"{prefix}cross_attn_{kind}", width) for kind in "kv")
        for made in (key, value):
            weight = o.Weight(f"{made.name}.weight", (width, rows.width))
            build.append(o.Linear(source=rows, out=made, weight=weight))
        build.append(o.WriteKv(key=key, value=value, kv_layer=number))
