"""State spaces and convolutions as operations: what a recurrent layer has instead of attention.

A layer's normed stream comes in; the rows that its output matrix takes go out.
"""

from ingot.graph import ops as o
from ingot.models.builder import Builder
from ingot.models.spec import DeltaSpec, Mamba2Spec, MambaSpec, ShortConvSpec, StateSpec

_LENGTH_EPSILON = 1e-6  # of the delta rule's queries and keys: no file says it


def add_states(build: Builder, x: o.Value, spec: StateSpec) -> o.Value:
    """Write a state space or a convolution down."""
    match spec:
        case MambaSpec():
            return _mamba(build, x, spec)
        case Mamba2Spec():
            return _mamba2(build, x, spec)
        case ShortConvSpec():
            return _short_conv(build, x, spec)
        case DeltaSpec():
            return _delta_rule(build, x, spec)


def _mamba(build: Builder, x: o.Value, spec: MambaSpec) -> o.Value:
    channels = build.linear(x, "ssm_x_in", spec.width, fused=("ssm_in", 0, 2 * spec.width))
    gate = build.linear(x, "ssm_z", spec.width, fused=("ssm_in", spec.width, 2 * spec.width))
    channels = _convolve(build, channels, spec.taps, 0, spec.width)
    made, first = [], 0
    rows = spec.step_rank + 2 * spec.states
    for name, width in (("rank", spec.step_rank), ("b", spec.states), ("c", spec.states)):
        made.append(build.linear(channels, f"ssm_{name}", width, fused=("ssm_x", first, rows)))
        first += width
    if spec.inner_norms:
        norms = zip(made, spec.inner_norms, strict=True)
        made = [build.norm(value, norm, suffix=f".{i}") for i, (value, norm) in enumerate(norms)]
    step, b, c = made
    step = build.linear(step, "ssm_dt", spec.width, bias=True)
    decay = build.weight("ssm_a", spec.width, spec.states)
    out = _scan(build, channels, step, b, c, decay, build.weight("ssm_d", spec.width))
    return build.activate(gate, out, "ssm_gated", o.Activation.SILU)


def _mamba2(build: Builder, x: o.Value, spec: Mamba2Spec) -> o.Value:
    wide = spec.groups * spec.states
    widths = {"z": spec.width, "x": spec.width, "b": wide, "c": wide, "dt": spec.heads}
    rows, first = sum(widths.values()), 0
    made = {}
    for name, width in widths.items():
        made[name] = build.value(f"ssm_{name}", width)
        build.append(
            o.Linear(
                source=x,
                out=made[name],
                weight=o.Weight(f"{build.prefix}ssm_in.weight", (width, x.width), first, rows),
                bias=build.weight("ssm_dt.bias", width) if name == "dt" else None,
            )
        )
        first += width
    channels, first = spec.width + 2 * wide, 0
    for name in ("x", "b", "c"):
        made[name] = _convolve(build, made[name], spec.taps, first, channels)
        first += widths[name]
    decay, skip = (build.weight(name, spec.heads, 1) for name in ("ssm_a", "ssm_d"))
    x, step, b, c = (made[name] for name in ("x", "dt", "b", "c"))
    out = _scan(build, x, step, b, c, decay, skip, spec.groups)
    out = build.activate(made["z"], out, "ssm_gated", o.Activation.SILU)
    if spec.norm is None:
        return out
    return build.norm(out, spec.norm, shape=(spec.groups, spec.width // spec.groups))


def _short_conv(build: Builder, x: o.Value, spec: ShortConvSpec) -> o.Value:
    parts = [
        build.linear(
            x, f"shortconv.{name}", x.width, fused=("shortconv.in_proj", i * x.width, 3 * x.width)
        )
        for i, name in enumerate(("b", "c", "x"))
    ]
    b, c, values = parts
    product = build.activate(b, values, "shortconv.product", o.Activation.IDENTITY)
    out = build.value("shortconv.convolved", x.width)
    build.append(
        o.CausalConv(
            source=product,
            out=out,
            weight=build.weight("shortconv.conv.weight", x.width, spec.taps),
            bias=None,
            silu=False,
            state=build.new_state(),
        )
    )
    return build.activate(c, out, "shortconv.gated", o.Activation.IDENTITY)


def _delta_rule(build: Builder, x: o.Value, spec: DeltaSpec) -> o.Value:
    keys, values = spec.key_heads * spec.key_size, spec.heads * spec.value_size
    widths = {"q": keys, "k": keys, "v": values, "z": values}
    made, first = {}, 0
    if spec.mixed_inputs:
        mixed = build.linear(x, "ssm_in", sum(widths.values()))
        for name, width in widths.items():
            size = width // spec.key_heads
            made[name] = build.pick_heads(mixed, f"ssm_{name}", spec.key_heads, first, size)
            first += size
    else:
        for name in "qkv":
            fused = ("attn_qkv", first, 2 * keys + values)
            made[name] = build.linear(x, f"ssm_{name}", widths[name], fused=fused)
            first += widths[name]
        made["z"] = build.linear(x, "attn_gate", values)
    rates = ("ssm_beta", "ssm_alpha")
    if spec.mixed_rates:
        mixed, size = build.linear(x, "ssm_ba", 2 * spec.heads), spec.heads // spec.key_heads
        rate, step = (
            build.pick_heads(mixed, name, spec.key_heads, i * size, size)
            for i, name in enumerate(rates)
        )
    else:
        rate, step = (build.linear(x, name, spec.heads) for name in rates)
    first = 0
    for name in "qkv":
        made[name] = _convolve(build, made[name], spec.taps, first, 2 * keys + values, bias=False)
        first += widths[name]
    out = build.value("ssm_delta", values)
    build.append(
        o.DeltaRule(
            query=made["q"],
            key=made["k"],
            value=made["v"],
            step=step,
            rate=rate,
            out=out,
            decay=build.weight("ssm_a", spec.heads),
            bias=build.weight("ssm_dt.bias", spec.heads),
            key_heads=spec.key_heads,
            tiled=spec.tiled,
            epsilon=_LENGTH_EPSILON,
            state=build.new_state(),
        )
    )
    out = build.norm(out, spec.norm, shape=(spec.value_size,))
    return build.activate(made["z"], out, "ssm_gated", o.Activation.SILU)


def _convolve(
    build: Builder, source: o.Value, taps: int, first: int, channels: int, *, bias: bool = True
) -> o.Value:
    """A convolution by some rows of the layer's."""
    out = build.value(f"{source.name.removeprefix(build.prefix)}.convolved", source.width)
    name = f"{build.prefix}ssm_conv1d"
    build.append(
        o.CausalConv(
            source=source,
            out=out,
            weight=o.Weight(f"{name}.weight", (source.width, taps), first, channels),
            bias=o.Weight(f"{name}.bias", (source.width,), first, channels) if bias else None,
            state=build.new_state(),
        )
    )
    return out


def _scan(
    build: Builder,
    x: o.Value,
    step: o.Value,
    b: o.Value,
    c: o.Value,
    decay: o.Weight,
    skip: o.Weight,
    groups: int = 1,
) -> o.Value:
    """A state space; the softplus of its steps."""
    step = build.activate(step, None, "ssm_step", o.Activation.SOFTPLUS)
    out = build.value("ssm_scan", x.width)
    build.append(
        o.StateScan(
            x=x,
            step=step,
            b=b,
            c=c,
            out=out,
            decay=decay,
            skip=skip,
            groups=groups,
            state=build.new_state(),
        )
    )
    return out
