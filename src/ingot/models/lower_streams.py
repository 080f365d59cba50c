"""Inputs of single layers, and layers that work on one of several streams (AltUp), as operations.

Streams lie side by side in one row: the residual stream of the network is that wide.
"""

from dataclasses import dataclass

from ingot.graph import ops as o
from ingot.models.builder import Builder
from ingot.models.spec import LayerInputSpec, Network, StreamLayerSpec

_LEAST_SQUARE = 1e-5  # of a stream that is made as large as another: no file says it
_HALF_POWER = 2**-0.5


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """The inputs of all layers of a token, side by side; or none."""

    value: o.Value | None
    width: int = 0

    @classmethod
    def of(cls, build: Builder, network: Network, stream: o.Value) -> "LayerInputs":
        """A row of the token's own, and one that is made of its embedding."""
        spec = network.layer_inputs
        if spec is None:
            return cls(None)
        width = len(network.layers) * spec.width
        own = build.value("per_layer_token_embd", width)
        build.append(
            o.Embed(
                weight=build.weight("per_layer_token_embd.weight", network.vocabulary, width),
                out=own,
                scale=spec.width**0.5,
            )
        )
        made = build.linear(stream, "per_layer_model_proj", width, scale=stream.width**-0.5)
        made = build.norm(made, spec.norm, shape=(spec.width,))
        return cls(build.add(own, made, "per_layer_input"), spec.width)

    def of_layer(self, build: Builder, layer: int) -> o.Value | None:
        """Those of one layer."""
        if self.value is None:
            return None
        return build.pick_heads(self.value, "layer_input", 1, layer * self.width, self.width)


def add_layer_input(
    build: Builder, x: o.Value, layer_input: o.Value, spec: LayerInputSpec
) -> o.Value:
    """What a layer's input becomes, gated by x."""
    gate = build.linear(x, "inp_gate", layer_input.width)
    gated = build.activate(gate, layer_input, "inp_gated", spec.activation)
    # The input is the sum of two rows, times this; the matrix takes it along.
    joined = build.linear(gated, "proj", x.width, scale=_HALF_POWER)
    return build.norm(joined, spec.norm)


def split_streams(build: Builder, stream: o.Value, count: int) -> o.Value:
    """The first stream and those that are made of it, all of its size."""
    width = (count - 1) * stream.width
    others = build.value("altup_proj", width)
    build.append(
        o.Linear(
            source=stream,
            out=others,
            weight=build.weight("altup_proj.weight", count - 1, stream.width, stream.width),
        )
    )
    return _stacked(build, stream, others, "streams")


def join_streams(build: Builder, streams: o.Value, count: int) -> o.Value:
    """The mean of the first stream and what is made of the others."""
    width = streams.width // count
    first = build.pick_heads(streams, "first_stream", 1, 0, width)
    rest = build.pick_heads(streams, "other_streams", 1, width, streams.width - width)
    made = build.value("altup_unembd_proj", rest.width)
    build.append(
        o.HeadLinear(
            source=rest,
            out=made,
            weight=build.weight("altup_unembd_proj.weight", count - 1, width, width),
            heads=count - 1,
            first=0,
            rows=width,
        )
    )
    stacked = _stacked(build, first, made, "streams.joined")
    out = build.value("mean_stream", width)
    build.append(o.MeanStreams(source=stacked, out=out))
    return out


def _stacked(build: Builder, first: o.Value, others: o.Value, name: str) -> o.Value:
    out = build.value(name, first.width + others.width)
    build.append(o.StackStreams(first=first, others=others, out=out, epsilon=_LEAST_SQUARE))
    return out


def predict_streams(
    build: Builder, streams: o.Value, spec: StreamLayerSpec
) -> tuple[o.Value, o.Value]:
    """The streams before the layer, and the one that it works on."""
    width = streams.width // spec.count
    active = build.pick_heads(streams, "active_stream", 1, spec.active * width, width)
    gains = _routed(build, active, spec, "predict")
    gains = build.linear(gains, "altup_predict_coef", spec.count**2)
    out = build.value("predicted_streams", streams.width)
    build.append(o.MixStreams(source=streams, gains=gains, out=out, streams=spec.count))
    return out, build.pick_heads(out, "predicted_stream", 1, spec.active * width, width)


def correct_streams(
    build: Builder,
    predicted: o.Value,
    row: o.Value,
    layer_input: o.Value,
    spec: StreamLayerSpec,
) -> o.Value:
    """The streams after the layer made `row` of one, and its input joined the others."""
    gains = _routed(build, row, spec, "correct")
    gains = build.linear(gains, "altup_correct_coef", spec.count)
    corrected, out = (
        build.value(name, predicted.width) for name in ("corrected_streams", "streams")
    )
    build.append(
        o.CorrectStreams(source=predicted, row=row, gains=gains, out=corrected, active=spec.active)
    )
    active = build.pick_heads(corrected, "corrected_stream", 1, spec.active * row.width, row.width)
    weight = build.weight("altup_correct_scale.weight", row.width)
    active = build.scale(active, "altup_scaled", weight=weight)
    joined = add_layer_input(build, active, layer_input, spec.layer_input)
    build.append(o.AddToStreams(source=corrected, row=joined, out=out))
    return out


def _routed(build: Builder, stream: o.Value, spec: StreamLayerSpec, name: str) -> o.Value:
    """How much each stream matters, in the layer's eyes."""
    normed = build.norm(stream, spec.router_norm, suffix=f".{name}")
    out = build.value(f"altup_router.{name}", spec.count)
    build.append(
        o.Linear(
            source=normed,
            out=out,
            weight=build.weight("altup_router.weight", spec.count, stream.width),
            scale=1 / stream.width,
        )
    )
    return build.activate(out, None, f"altup_router.{name}.tanh", o.Activation.TANH)


def add_laurel(build: Builder, x: o.Value, spec: StreamLayerSpec) -> o.Value:
    """The way around attention."""
    short = build.linear(x, "laurel_l", spec.laurel_rank)
    made = build.linear(short, "laurel_r", x.width)
    return build.add(x, build.norm(made, spec.laurel_norm), "laurel")
