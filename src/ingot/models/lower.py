"""From a Network to a ComputationGraph: the shared blocks, written once.

Which optional tensors the file holds (a separate output matrix, say) is asked of
`has_tensor`; everything else comes from the description.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ingot.graph import ComputationGraph, KvLayer
from ingot.graph import ops as o
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec, RopeSpec


@dataclass(slots=True)
class _Builder:
    """Collects operations; each method appends one and returns what it writes."""

    prefix: str = ""
    ops: list[o.Op] = field(default_factory=list)

    def value(self, name: str, width: int) -> o.Value:
        return o.Value(self.prefix + name, width)

    def weight(self, name: str, *shape: int) -> o.Weight:
        return o.Weight(self.prefix + name, shape)

    def norm(
        self, source: o.Value, spec: NormSpec, *, run: int | None = None, suffix: str = ""
    ) -> o.Value:
        run = run or source.width
        out = self.value(spec.name + suffix, source.width)
        self.ops.append(
            o.Norm(
                source=source,
                out=out,
                weight=self.weight(f"{spec.name}.weight", run),
                bias=self.weight(f"{spec.name}.bias", run) if spec.bias else None,
                kind=spec.kind,
                epsilon=spec.epsilon,
            )
        )
        return out

    def linear(self, source: o.Value, name: str, width: int, *, bias: bool = False) -> o.Value:
        out = self.value(name, width)
        self.ops.append(
            o.Linear(
                source=source,
                out=out,
                weight=self.weight(f"{name}.weight", width, source.width),
                bias=self.weight(f"{name}.bias", width) if bias else None,
            )
        )
        return out

    def rope(self, source: o.Value, spec: RopeSpec, head_size: int) -> o.Value:
        out = self.value(f"{source.name.removeprefix(self.prefix)}.turned", source.width)
        self.ops.append(
            o.Rope(
                source=source,
                out=out,
                head_size=head_size,
                frequencies=spec.frequencies,
                layout=spec.layout,
                magnitude=spec.magnitude,
            )
        )
        return out

    def add(self, left: o.Value, right: o.Value, name: str) -> o.Value:
        out = self.value(name, left.width)
        self.ops.append(o.Add(left=left, right=right, out=out))
        return out

    def select(self, source: o.Value) -> o.Value:
        out = self.value(f"{source.name.rpartition('.')[2]}.selected", source.width)
        self.ops.append(o.Select(source=source, out=out))
        return out

    def attention(self, x: o.Value, spec: AttentionSpec, layer: int) -> o.Value:
        query = self.linear(x, "attn_q", spec.heads * spec.head_size, bias=spec.qkv_bias)
        key = self.linear(x, "attn_k", spec.kv_heads * spec.head_size, bias=spec.qkv_bias)
        value = self.linear(x, "attn_v", spec.kv_heads * spec.head_size, bias=spec.qkv_bias)
        if spec.query_norm:
            query = self.norm(query, spec.query_norm, run=spec.head_size)
        if spec.key_norm:
            key = self.norm(key, spec.key_norm, run=spec.head_size)
        if spec.rope:
            query = self.rope(query, spec.rope, spec.head_size)
            key = self.rope(key, spec.rope, spec.head_size)
        self.ops.append(o.WriteKv(key=key, value=value, layer=layer))
        mixed = self.value("attention", query.width)
        self.ops.append(
            o.Attend(
                query=query,
                out=mixed,
                layer=layer,
                heads=spec.heads,
                kv_heads=spec.kv_heads,
                scale=spec.head_size**-0.5 if spec.scale is None else spec.scale,
                window=spec.window,
                softcap=spec.softcap,
                sinks=self.weight("attn_sinks.weight", spec.heads) if spec.sinks else None,
            )
        )
        return mixed

    def mlp(self, x: o.Value, spec: MlpSpec, width: int) -> o.Value:
        gate = self.linear(x, "ffn_gate", spec.width) if spec.gated else None
        up = self.linear(x, "ffn_up", spec.width, bias=spec.bias)
        out = self.value("ffn_act", spec.width)
        if gate:
            self.ops.append(o.Activate(gate=gate, up=up, out=out, kind=spec.activation))
        else:
            self.ops.append(o.Activate(gate=up, out=out, kind=spec.activation))
        return self.linear(out, "ffn_down", width, bias=spec.bias)

    def layer(self, stream: o.Value, spec: LayerSpec, index: int, *, last: bool) -> o.Value:
        self.prefix = f"blk.{index}."
        normed = self.norm(stream, spec.attention_norm)
        mixed = self.attention(normed, spec.attention, index)
        if last:  # nobody looks at the other tokens of the last layer any more
            mixed, stream = self.select(mixed), self.select(stream)
            if not spec.mlp_norm:
                normed = self.norm(stream, spec.attention_norm, suffix=".selected")
        mixed = self.linear(mixed, "attn_output", stream.width, bias=spec.attention.output_bias)
        if spec.attention_post_norm:
            mixed = self.norm(mixed, spec.attention_post_norm)
        stream = self.add(stream, mixed, "attn_residual")
        if spec.mlp_norm:
            normed = self.norm(stream, spec.mlp_norm)
        mixed = self.mlp(normed, spec.mlp, stream.width)
        if spec.mlp_post_norm:
            mixed = self.norm(mixed, spec.mlp_post_norm)
        return self.add(stream, mixed, "ffn_residual")


def lower(network: Network, has_tensor: Callable[[str], bool]) -> ComputationGraph:
    """Write a network down as operations."""
    build = _Builder()
    embedding = build.weight("token_embd.weight", network.vocabulary, network.width)
    stream = build.value("token_embd", network.width)
    build.ops.append(o.Embed(weight=embedding, out=stream, scale=network.embedding_scale))
    for index, spec in enumerate(network.layers):
        last = index == len(network.layers) - 1
        stream = build.layer(stream, spec, index, last=last)
    build.prefix = ""
    stream = build.norm(stream, network.output_norm)
    logits = build.value("logits", network.vocabulary)
    tied = not has_tensor("output.weight")
    build.ops.append(
        o.Linear(
            source=stream,
            out=logits,
            weight=embedding
            if tied
            else build.weight("output.weight", network.vocabulary, network.width),
            bias=build.weight("output.bias", network.vocabulary) if network.output_bias else None,
        )
    )
    if network.logit_softcap:
        capped = build.value("logits.capped", network.vocabulary)
        build.ops.append(o.SoftCap(source=logits, out=capped, cap=network.logit_softcap))
        logits = capped
    return ComputationGraph(
        ops=tuple(build.ops),
        logits=logits,
        kv_layers=tuple(
            KvLayer(layer.attention.kv_heads, layer.attention.head_size, layer.attention.window)
            for layer in network.layers
        ),
        context_length=network.context_length,
    )
