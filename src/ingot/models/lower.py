"""From a Network to a ComputationGraph: the shared blocks, written once.

Which optional tensors the file holds (a separate output matrix, say) is asked of
`has_tensor`; everything else comes from the description.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ingot.graph import ComputationGraph, KvLayer
from ingot.graph import ops as o
from ingot.graph.distances import alibi_slopes, bucket_of_distances
from ingot.graph.ops.record import layer_prefix
from ingot.models.builder import Builder
from ingot.models.lower_cross import add_cross, write_cross
from ingot.models.lower_experts import add_beside_experts, add_experts
from ingot.models.lower_latents import add_latents
from ingot.models.lower_states import add_states
from ingot.models.lower_streams import (
    LayerInputs,
    add_laurel,
    add_layer_input,
    correct_streams,
    join_streams,
    predict_streams,
    split_streams,
)
from ingot.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    HeadSpec,
    LatentSpec,
    LayerSpec,
    MlpSpec,
    Network,
    NormOver,
    NormSpec,
    ShortConvSpec,
    StateSpec,
    StreamLayerSpec,
    XieluSpec,
)


@dataclass(slots=True)
class Blocks(Builder):
    """The blocks of a layer; each method returns what it writes."""

    def attention(self, x: o.Value, spec: AttentionSpec) -> o.Value:
        """Attention, up to its output matrix."""
        rows = {"attn_q": spec.heads, "attn_k": spec.kv_heads, "attn_v": spec.kv_heads}
        if spec.gate_in_query:
            rows["attn_q"] *= 2
        made = self.projections(x, rows, spec)
        query = made["attn_q"]
        gate = self.linear(x, "attn_gate", query.width) if spec.gated else None
        if spec.gate_in_query:
            query, gate = (
                self.pick_heads(query, name, spec.heads, i * spec.head_size, spec.head_size)
                for i, name in enumerate(("attn_query", "attn_gate"))
            )
        if spec.temper:
            query = self.temper(query, spec.temper)
        query = self.turned(query, spec.query_norm, spec)
        if spec.kv_of is not None:
            kv_layer = self.kv_layer_of[spec.kv_of]
        else:
            kv_layer = self.write_kv(made["attn_k"], made["attn_v"], spec)
        mixed = self.value("attention", spec.heads * spec.head_size)
        self.append(
            o.Attend(
                query=query,
                out=mixed,
                kv_layer=kv_layer,
                heads=spec.heads,
                kv_heads=spec.kv_heads,
                scale=spec.head_size**-0.5 if spec.scale is None else spec.scale,
                window=spec.window,
                chunked=spec.chunked,
                softcap=spec.softcap,
                sinks=self.weight("attn_sinks.weight", spec.heads) if spec.sinks else None,
                causal=spec.causal,
                seen=spec.seen,
                bias=self.distance_bias(spec),
                slopes=alibi_slopes(spec.heads) if spec.alibi else (),
            )
        )
        if gate:
            mixed = self.activate(gate, mixed, "attn_gated", o.Activation.SIGMOID)
        return mixed

    def distance_bias(self, spec: AttentionSpec) -> o.DistanceBias | None:
        """What distances add to scores, by a tensor that may be another layer's."""
        if spec.relative is None:
            return None
        prefix = layer_prefix(spec.relative.layer, self.stack)
        shape = spec.relative.buckets, spec.heads
        return o.DistanceBias(
            weight=o.Weight(f"{prefix}attn_rel_b.weight", shape),
            buckets=bucket_of_distances(
                spec.relative.buckets, spec.relative.reach, both_ways=not spec.causal
            ),
        )

    def projections(
        self, x: o.Value, heads: dict[str, int], spec: AttentionSpec
    ) -> dict[str, o.Value]:
        """Query, key and value, as far as a layer makes them itself."""
        total, first = sum(heads.values()) * spec.head_size, 0
        made: dict[str, o.Value] = {}
        for name, count in heads.items():
            if name != "attn_q" and spec.kv_of is not None:
                continue
            if name == "attn_v" and spec.value_is_key:
                made[name] = made["attn_k"]
                continue
            width = count * spec.head_size
            fused = ("attn_qkv", first, total) if spec.fused_qkv else None
            made[name] = self.linear(x, name, width, bias=spec.qkv_bias, fused=fused)
            first += width
        return made

    def write_kv(self, key: o.Value, value: o.Value, spec: AttentionSpec) -> int:
        """Keys and values go to a layer of the cache."""
        kept = spec.window if spec.causal else 0
        kv_layer = self.new_kv_layer(KvLayer(spec.kv_heads, spec.head_size, kept))
        if spec.value_norm:
            value = self.norm(value, spec.value_norm, shape=(spec.head_size,))
        key = self.turned(key, spec.key_norm, spec)
        self.append(o.WriteKv(key=key, value=value, kv_layer=kv_layer))
        return kv_layer

    def turned(self, heads: o.Value, norm: NormSpec | None, spec: AttentionSpec) -> o.Value:
        """Heads of query or key after their norm and RoPE."""
        if not spec.norms_last:
            heads = self.head_norm(heads, norm, spec)
        if spec.rope:
            heads = self.rope(heads, spec.rope, spec.head_size)
        return self.head_norm(heads, norm, spec) if spec.norms_last else heads

    def head_norm(self, heads: o.Value, norm: NormSpec | None, spec: AttentionSpec) -> o.Value:
        """The norm of query or key, if there is one."""
        if norm is None:
            return heads
        match spec.norm_over:
            case NormOver.HEAD:
                return self.norm(heads, norm, shape=(spec.head_size,))
            case NormOver.EACH_HEAD:
                count = heads.width // spec.head_size
                return self.norm(heads, norm, shape=(count, spec.head_size))
            case NormOver.ROW:
                return self.norm(heads, norm)

    def mlp(self, x: o.Value, spec: MlpSpec, width: int, scale: float) -> o.Value:
        """The MLP of a normed stream."""

        def half(name: str, first: int) -> o.Value:
            fused = ("ffn_up", first, 2 * spec.width) if spec.fused_gate else None
            return self.linear(x, name, spec.width, bias=spec.bias, fused=fused)

        gate = half("ffn_gate", 0) if spec.gated else None
        up = half("ffn_up", spec.width)
        if gate and spec.peaks is not None:
            gate = self.keep_peaks(gate, "ffn_gate.peaks", spec.peaks)
        if isinstance(spec.activation, XieluSpec):
            out = self.xielu(up, "ffn_act", spec.activation)
        else:
            out = self.gated(gate, up, "ffn_act", spec.activation)
        out = self.optional_norm(out, spec.inner_norm)
        bias = spec.bias or spec.down_bias
        return self.linear(out, "ffn_down", width, bias=bias, scale=scale)

    def mix(self, x: o.Value, spec: AttentionSpec | LatentSpec | StateSpec) -> o.Value:
        """What looks at other tokens, up to its output matrix."""
        if isinstance(spec, AttentionSpec):
            return self.attention(x, spec)
        if isinstance(spec, LatentSpec):
            return add_latents(self, x, spec)
        return add_states(self, x, spec)

    def block(
        self, stream: o.Value, layer_input: o.Value | None, spec: LayerSpec, *, last: bool
    ) -> o.Value:
        """A layer; after the `last` one only the wanted tokens have rows."""
        normed = self.optional_norm(stream, spec.attention_norm)
        parts = [part for part in (spec.attention, spec.beside) if part]
        made = [self.mix(normed, part) for part in parts]
        # Nobody looks at the other tokens of the last layer any more.
        if last and not spec.cross:
            made, stream = [self.select(each) for each in made], self.select(stream)
            if spec.parallel and not spec.mlp_norm:
                normed = self.optional_norm(stream, spec.attention_norm, ".selected")
        before = stream
        for part, each in zip(parts, made, strict=True):
            stream = self.join(stream, each, part, spec)
        if spec.again_norm:
            stream = self.norm(self.add(stream, before, "attn_again"), spec.again_norm)
        if spec.cross:
            stream = add_cross(self, stream, spec.cross, last=last)
        if spec.mlp is None:
            return stream
        if spec.mlp_norm:
            normed = self.norm(before if spec.parallel else stream, spec.mlp_norm)
        elif not spec.parallel:
            normed = stream
        stream = self.feed_forward(stream, normed, spec.mlp, spec, before)
        if spec.layer_input and layer_input:
            layer_input = self.select(layer_input) if last else layer_input
            joined = add_layer_input(self, stream, layer_input, spec.layer_input)
            stream = self.add(stream, joined, "layer_input_residual")
        if spec.output_scale:
            weight = self.weight("layer_output_scale.weight", 1)
            stream = self.scale(stream, "layer_output", weight=weight)
        return stream

    def feed_forward(
        self,
        stream: o.Value,
        normed: o.Value,
        mlp: MlpSpec | ExpertsSpec,
        spec: LayerSpec,
        before: o.Value | None = None,
    ) -> o.Value:
        """MLP or experts join the stream; `before`: what it was before the layer."""
        if isinstance(mlp, ExpertsSpec):
            scale, post_norm = spec.residual_scale, spec.mlp_post_norm
            stream = add_experts(self, stream, normed, mlp, scale, post_norm, before)
            return self.optional_norm(stream, spec.mlp_stream_norm)
        mixed = self.mlp(normed, mlp, stream.width, spec.residual_scale)
        if spec.beside_experts:
            mixed = self.norm(mixed, spec.beside_experts.mlp_post_norm)
            mixed = add_beside_experts(self, mixed, stream, spec.beside_experts)
        mixed = self.optional_norm(mixed, spec.mlp_post_norm)
        stream = self.add(stream, mixed, "ffn_residual")
        return self.optional_norm(stream, spec.mlp_stream_norm)

    def stream_block(
        self, streams: o.Value, layer_input: o.Value, spec: StreamLayerSpec, *, last: bool
    ) -> o.Value:
        """A layer that works on one of several streams."""
        predicted, stream = predict_streams(self, streams, spec)
        normed = self.norm(stream, spec.attention_norm)
        around = add_laurel(self, normed, spec)
        mixed = self.attention(normed, spec.attention)
        if last:
            mixed, predicted, stream, around, layer_input = (
                self.select(each) for each in (mixed, predicted, stream, around, layer_input)
            )
        mixed = self.linear(mixed, "attn_output", stream.width)
        mixed = self.norm(mixed, spec.attention_post_norm)
        stream = self.add(self.add(stream, mixed, "attn_residual"), around, "laurel_residual")
        stream = self.scale(stream, "attn_laurel", 2**-0.5)
        mixed = self.mlp(self.norm(stream, spec.mlp_norm), spec.mlp, stream.width, 1.0)
        stream = self.add(stream, self.norm(mixed, spec.mlp_post_norm), "ffn_residual")
        return correct_streams(self, predicted, stream, layer_input, spec)

    def join(
        self,
        stream: o.Value,
        mixed: o.Value,
        part: AttentionSpec | LatentSpec | StateSpec,
        spec: LayerSpec,
    ) -> o.Value:
        """What a part of a layer made joins the stream."""
        name, bias = "ssm_out", False
        match part:
            case AttentionSpec():
                name, bias = part.output, part.output_bias
                mixed = self.optional_norm(mixed, part.inner_norm)
            case LatentSpec():
                name = "attn_output"
            case ShortConvSpec():
                name = "shortconv.out_proj"
        mixed = self.linear(mixed, name, stream.width, bias=bias, scale=spec.residual_scale)
        mixed = self.optional_norm(mixed, spec.attention_post_norm)
        residual = "ssm_residual" if part is spec.beside else "attn_residual"
        stream = self.add(stream, mixed, residual)
        return self.optional_norm(stream, spec.attention_stream_norm)


def lower(
    network: Network,
    has_tensor: Callable[[str], bool],
    *,
    hidden: bool = False,
    every_row: bool = False,
) -> ComputationGraph:
    """Write a network down as operations.

    `hidden`: up to the rows before its output or head; those of an encoder-decoder are its
    encoder's. `every_row`: those rows are computed for all tokens, not only for the wanted ones.
    """
    if hidden and network.encoder:
        network = network.encoder
    build = Blocks(network.stack)
    stream = _layers(build, network, all_rows=every_row)
    if every_row:
        stream = build.select(stream)
    head = None if hidden else network.head
    hidden = hidden or not network.logits
    if head:
        stream = _head(build, head, stream)
    elif not hidden:
        stream = add_output(build, network, stream, tied=not has_tensor("output.weight"))
    encoder = _lower_encoder(build, network.encoder) if network.encoder else None
    return ComputationGraph(
        ops=tuple(build.ops),
        logits=stream,
        kv_layers=tuple(build.kv_layers),
        context_length=network.context_length,
        hidden=hidden and not head,
        scores=head is not None,
        encoder=encoder,
        start_token=network.start_token,
        streams=tuple(build.streams),
    )


def _lower_encoder(decoder: Builder, network: Network) -> ComputationGraph:
    """The encoder before a decoder; both write other positions of the same layers of the cache."""
    build = Blocks(network.stack, kv_layers=decoder.kv_layers, lent=decoder.kv_layer_of)
    rows = _layers(build, network, all_rows=True)
    write_cross(build, rows, decoder)
    out = build.select(rows)
    return ComputationGraph(
        ops=tuple(build.ops),
        logits=out,
        kv_layers=tuple(build.kv_layers),
        context_length=network.context_length,
        hidden=True,
    )


def _layers(build: Blocks, network: Network, *, all_rows: bool = False) -> o.Value:
    """Embedding, layers and norm; in the end only the rows that are wanted, or `all_rows`."""
    stream = _embed(build, network)
    inputs = LayerInputs.of(build, network, stream)
    if network.streams > 1:
        stream = split_streams(build, stream, network.streams)
    for index, spec in enumerate(network.layers):
        last = not all_rows and index == len(network.layers) - 1
        build.streams.append(stream)
        build.layer = index
        own = inputs.of_layer(build, index)
        if isinstance(spec, LayerSpec):
            stream = build.block(stream, own, spec, last=last)
        elif own:
            stream = build.stream_block(stream, own, spec, last=last)
    build.streams.append(stream)
    build.layer = None
    if network.streams > 1:
        stream = join_streams(build, stream, network.streams)
    return build.optional_norm(stream, network.output_norm)


def _embed(build: Builder, network: Network) -> o.Value:
    width, positions, kind = network.width, None, None
    if network.learned_positions:
        positions = build.weight("position_embd.weight", network.context_length, width)
    if network.token_types:
        kind = build.weight("token_types.weight", network.token_types, width)
    stream = build.value("token_embd", width)
    build.append(
        o.Embed(
            weight=build.weight("token_embd.weight", network.vocabulary, width),
            out=stream,
            scale=network.embedding_scale,
            positions=positions,
            types=kind,
        )
    )
    return build.optional_norm(stream, network.embedding_norm)


def _head(build: Builder, head: HeadSpec, stream: o.Value) -> o.Value:
    if head.dense:
        stream = build.linear(stream, "cls", head.dense, bias=head.dense_bias)
        stream = build.activate(stream, None, "cls.act", o.Activation.TANH)
    if head.outputs:
        stream = build.linear(stream, "cls.output", head.outputs, bias=head.output_bias)
    return stream


def add_output(build: Builder, network: Network, stream: o.Value, *, tied: bool) -> o.Value:
    """The output matrix, which may be the embedding."""
    name = "token_embd.weight" if tied else "output.weight"
    logits = build.value("logits", network.vocabulary)
    build.append(
        o.Linear(
            source=stream,
            out=logits,
            weight=build.weight(name, network.vocabulary, network.width),
            bias=build.weight("output.bias", network.vocabulary) if network.output_bias else None,
            scale=network.logit_scale,
        )
    )
    if not network.logit_softcap:
        return logits
    capped = build.value("logits.capped", network.vocabulary)
    build.append(o.SoftCap(source=logits, out=capped, cap=network.logit_softcap))
    return capped
