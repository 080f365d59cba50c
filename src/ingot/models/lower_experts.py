"""The block of experts: a router, the experts it chooses, and one that all tokens share."""

from dataclasses import replace

from ingot.graph import ops as o
from ingot.models.builder import Builder
from ingot.models.spec import (
    BesideExpertsSpec,
    ExpertGroupsSpec,
    ExpertsSpec,
    NormSpec,
    SharedExpertSpec,
)


def add_experts(
    build: Builder,
    stream: o.Value,
    x: o.Value,
    spec: ExpertsSpec,
    scale: float,
    post_norm: NormSpec | None = None,
    before: o.Value | None = None,
) -> o.Value:
    """Experts of x join the stream, times `scale`, and after them the shared one.

    With a post-norm they join each other first. `before`: the stream before the layer.
    """
    scored = before if spec.early and before else x
    scores = build.linear(scored, "ffn_gate_inp", spec.count, bias=spec.bias)
    row_gate = None
    if spec.shared and spec.shared.gated:  # beside the scores: one pass over x for both
        row_gate = build.linear(x, "ffn_gate_inp_shexp", 1)
    shared_x = x
    if spec.weigh_input:
        x = _weighed(build, x, _route(build, scores, spec, 1.0, "ffn_weight"))
        spec = replace(spec, normalize=True)  # the weight of one expert becomes 1
    mixed = _mixed(build, x, scores, spec, scale, stream.width)
    before = mixed if post_norm else build.add(stream, mixed, "ffn_residual")
    if spec.shared:
        shared = _shared(build, shared_x, stream.width, spec, spec.shared, scale)
        if row_gate:
            gated = build.value("ffn_gated_shexp", stream.width)
            build.append(o.GateRows(source=shared, gate=row_gate, out=gated))
            shared = gated
        before = build.add(before, shared, "ffn_residual_shexp")
    if not post_norm:
        return before
    return build.add(stream, build.norm(before, post_norm), "ffn_residual")


def add_beside_experts(
    build: Builder, mixed: o.Value, stream: o.Value, spec: BesideExpertsSpec
) -> o.Value:
    """Experts of the stream join what an MLP made of it."""
    routed = build.norm(stream, spec.router_norm)
    scores = build.linear(routed, "ffn_gate_inp", spec.experts.count, scale=stream.width**-0.5)
    x = build.norm(stream, spec.norm)
    made = _mixed(build, x, scores, spec.experts, 1.0, stream.width)
    return build.add(mixed, build.norm(made, spec.post_norm), "ffn_both")


def _mixed(
    build: Builder, x: o.Value, scores: o.Value, spec: ExpertsSpec, scale: float, width: int
) -> o.Value:
    """What the chosen experts make of x, added up by their weights."""
    choice = _route(build, scores, spec, scale)
    shape = (spec.width, x.width)

    def half(name: str, first: int) -> o.Value:
        fused = ("ffn_gate_up_exps", first) if spec.fused_gate else None
        return _linear(build, x, choice, name, shape, spec, fused)

    gate = half("ffn_gate_exps", 0) if spec.gated else None
    up = half("ffn_up_exps", spec.width)
    active = build.gated(gate, up, "ffn_act_exps", spec.activation)
    down = _linear(build, active, choice, "ffn_down_exps", (width, spec.width), spec)
    mixed = build.value("ffn_mixed", width)
    build.append(o.MixExperts(source=down, choice=choice, out=mixed))
    return mixed


def _weighed(build: Builder, x: o.Value, choice: o.Value) -> o.Value:
    """The input of one expert, times the expert's weight."""
    weight = build.pick_heads(choice, "ffn_weight.picked", 1, 1, 1)
    out = build.value("ffn_weighed", x.width)
    build.append(o.GateRows(source=x, gate=weight, out=out, sigmoid=False))
    return out


def _route(
    build: Builder, scores: o.Value, spec: ExpertsSpec, scale: float, name: str = "ffn_choice"
) -> o.Value:
    choice = build.value(name, 2 * spec.used)
    bias = build.weight("exp_probs_b.bias", spec.count) if spec.selection_bias else None
    scales = build.weight("ffn_down_exps.scale", spec.count) if spec.scales else None
    groups = spec.groups or ExpertGroupsSpec(count=1, used=1, best=1)
    build.append(
        o.Route(
            scores=scores,
            out=choice,
            used=spec.used,
            gating=spec.gating,
            normalize=spec.normalize,
            scale=spec.scale * scale,
            near=spec.near,
            selection_bias=bias,
            expert_scales=scales,
            groups=groups.count,
            groups_used=groups.used,
            group_best=groups.best,
        )
    )
    return choice


def _linear(
    build: Builder,
    source: o.Value,
    choice: o.Value,
    name: str,
    shape: tuple[int, int],
    spec: ExpertsSpec,
    fused: tuple[str, int] | None = None,
) -> o.Value:
    """`shape` is one expert's.

    `fused`: the tensor with twice as many rows that holds its rows, and the first of them.
    """
    out = build.value(name, spec.used * shape[0])
    tensor, first = fused or (name, 0)
    rows = 2 * shape[0] if fused else shape[0]
    build.append(
        o.ExpertLinear(
            source=source,
            choice=choice,
            out=out,
            weight=build.weight(f"{tensor}.weight", spec.count, rows, shape[1]),
            bias=build.weight(f"{tensor}.bias", spec.count, rows) if spec.bias else None,
            first=first,
            rows=shape[0] if fused else None,
        )
    )
    return out


def _shared(
    build: Builder,
    x: o.Value,
    width: int,
    experts: ExpertsSpec,
    spec: SharedExpertSpec,
    scale: float,
) -> o.Value:
    gate = build.linear(x, "ffn_gate_shexp", spec.width) if experts.gated else None
    up = build.linear(x, "ffn_up_shexp", spec.width)
    active = build.gated(gate, up, "ffn_act_shexp", experts.activation)
    return build.linear(active, "ffn_down_shexp", width, scale=scale)
