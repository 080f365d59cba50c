"""From a Network to a ComputationGraph: the shared blocks, written once.

Which optional tensors the file holds (a separate output matrix, say) is asked of
`has_tensor`; everything else comes from the description.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ingot.graph import ComputationGraph, KvLayer
from ingot.graph import ops as o
from ingot.models.builder import Builder
from ingot.models.lower_experts import add_experts
from ingot.models.lower_latents import add_latents
from ingot.models.lower_states import add_states
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
    XieluSpec,
)


@dataclass(slots=True)
class _Blocks(Builder):
    """The blocks of a layer; each method returns what it writes."""

    def attention(self, x: o.Value, spec: AttentionSpec) -> o.Value:
        kept = spec.window if spec.causal else 0
        kv_layer = self.new_kv_layer(KvLayer(spec.kv_heads, spec.head_size, kept))
        projected, first = [], 0
        heads = {"attn_q": spec.heads, "attn_k": spec.kv_heads, "attn_v": spec.kv_heads}
        if spec.gate_in_query:
            heads["attn_q"] *= 2
        rows = sum(heads.values()) * spec.head_size
        for name, count in heads.items():
            width = count * spec.head_size
            fused = ("attn_qkv", first, rows) if spec.fused_qkv else None
            projected.append(self.linear(x, name, width, bias=spec.qkv_bias, fused=fused))
            first += width
        query, key, value = projected
        gate = self.linear(x, "attn_gate", query.width) if spec.gated else None
        if spec.gate_in_query:
            query, gate = (
                self.pick_heads(query, name, spec.heads, i * spec.head_size, spec.head_size)
                for i, name in enumerate(("attn_query", "attn_gate"))
            )
        if spec.temper:
            query = self.temper(query, spec.temper)
        query = self.turned(query, spec.query_norm, spec)
        key = self.turned(key, spec.key_norm, spec)
        self.append(o.WriteKv(key=key, value=value, kv_layer=kv_layer))
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
            )
        )
        if gate:
            mixed = self.activate(gate, mixed, "attn_gated", o.Activation.SIGMOID)
        return mixed

    def turned(self, heads: o.Value, norm: NormSpec | None, spec: AttentionSpec) -> o.Value:
        """Heads of query or key after their norm and RoPE."""
        if not spec.norms_last:
            heads = self.head_norm(heads, norm, spec)
        if spec.rope:
            heads = self.rope(heads, spec.rope, spec.head_size)
        return self.head_norm(heads, norm, spec) if spec.norms_last else heads

    def head_norm(self, heads: o.Value, norm: NormSpec | None, spec: AttentionSpec) -> o.Value:
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
        def half(name: str, first: int) -> o.Value:
            fused = ("ffn_up", first, 2 * spec.width) if spec.fused_gate else None
            return self.linear(x, name, spec.width, bias=spec.bias, fused=fused)

        gate = half("ffn_gate", 0) if spec.gated else None
        up = half("ffn_up", spec.width)
        if isinstance(spec.activation, XieluSpec):
            out = self.xielu(up, "ffn_act", spec.activation)
        else:
            out = self.gated(gate, up, "ffn_act", spec.activation)
        out = self.optional_norm(out, spec.inner_norm)
        return self.linear(out, "ffn_down", width, bias=spec.bias, scale=scale)

    def mix(self, x: o.Value, spec: AttentionSpec | LatentSpec | StateSpec) -> o.Value:
        """What looks at other tokens, up to its output matrix."""
        if isinstance(spec, AttentionSpec):
            return self.attention(x, spec)
        if isinstance(spec, LatentSpec):
            return add_latents(self, x, spec)
        return add_states(self, x, spec)

    def block(self, stream: o.Value, spec: LayerSpec, *, last: bool) -> o.Value:
        normed = self.optional_norm(stream, spec.attention_norm)
        parts = [part for part in (spec.attention, spec.beside) if part]
        made = [self.mix(normed, part) for part in parts]
        if last:  # nobody looks at the other tokens of the last layer any more
            made, stream = [self.select(each) for each in made], self.select(stream)
            if spec.parallel and not spec.mlp_norm:
                normed = self.optional_norm(stream, spec.attention_norm, ".selected")
        before = stream
        for part, each in zip(parts, made, strict=True):
            stream = self.join(stream, each, part, spec)
        if spec.mlp is None:
            return stream
        if spec.mlp_norm:
            normed = self.norm(before if spec.parallel else stream, spec.mlp_norm)
        elif not spec.parallel:
            normed = stream
        if isinstance(spec.mlp, ExpertsSpec):
            stream = add_experts(
                self, stream, normed, spec.mlp, spec.residual_scale, spec.mlp_post_norm
            )
            return self.optional_norm(stream, spec.mlp_stream_norm)
        mixed = self.mlp(normed, spec.mlp, stream.width, spec.residual_scale)
        mixed = self.optional_norm(mixed, spec.mlp_post_norm)
        stream = self.add(stream, mixed, "ffn_residual")
        return self.optional_norm(stream, spec.mlp_stream_norm)

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
                name, bias = "attn_output", part.output_bias
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
    network: Network, has_tensor: Callable[[str], bool], *, hidden: bool = False
) -> ComputationGraph:
    """Write a network down as operations; `hidden`: up to the rows before its output or head."""
    build = _Blocks()
    stream = _embed(build, network)
    for index, spec in enumerate(network.layers):
        last = index == len(network.layers) - 1
        build.layer = index
        stream = build.block(stream, spec, last=last)
    build.layer = None
    stream = build.optional_norm(stream, network.output_norm)
    head = None if hidden else network.head
    hidden = hidden or not network.logits
    if head:
        stream = _head(build, head, stream)
    elif not hidden:
        stream = _output(build, network, stream, tied=not has_tensor("output.weight"))
    return ComputationGraph(
        ops=tuple(build.ops),
        logits=stream,
        kv_layers=tuple(build.kv_layers),
        context_length=network.context_length,
        hidden=hidden and not head,
        scores=head is not None,
    )


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


def _output(build: Builder, network: Network, stream: o.Value, *, tied: bool) -> o.Value:
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
