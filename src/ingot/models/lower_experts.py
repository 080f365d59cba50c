"""The block of experts: a router, the experts it chooses, and one that all tokens share."""

from dataclasses import replace

from ingot.graph import ops as o
from ingot.models.builder import Builder
from ingot.models.spec import ExpertGroupsSpec, ExpertsSpec, NormSpec, SharedExpertSpec


def add_experts(
    build: Builder,
    stream: o.Value,
    x: o.Value,
    spec: ExpertsSpec,
    scale: float,
    post_norm: NormSpec | None = None,
) -> o.Value:
    """Experts of x join the stream, times `scale`, and after them the shared one.

    With a post-norm they join each other first.
    """
    scores = build.linear(x, "ffn_gate_inp", spec.count, bias=spec.bias)
    row_gate = None
    if spec.shared and spec.shared.gated:  # beside the scores: one pass over x for both
        row_gate = build.linear(x, "ffn_gate_inp_shexp", 1)
    shared_x = x
    if spec.weigh_input:
        x = _weighed(build, x, _route(build, scores, spec, 1.0, "ffn_weight"))
        spec = replace(spec, normalize=True)  # the weight of one expert becomes 1
    choice = _route(build, scores, spec, scale)
    shape = (spec.width, x.width)
    gate = _linear(build, x, choice, "ffn_gate_exps", shape, spec) if spec.gated else None
    up = _linear(build, x, choice, "ffn_up_exps", shape, spec)
    active = build.gated(gate, up, "ffn_act_exps", spec.activation)
    down = _linear(build, active, choice, "ffn_down_exps", (stream.width, spec.width), spec)
    mixed = build.value("ffn_mixed", stream.width)
    build.append(o.MixExperts(source=down, choice=choice, out=mixed))
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
) -> o.Value:
    """`shape` is one expert's."""
    out = build.value(name, spec.used * shape[0])
    build.append(
        o.ExpertLinear(
            source=source,
            choice=choice,
            out=out,
            weight=build.weight(f"{name}.weight", spec.count, *shape),
            bias=build.weight(f"{name}.bias", spec.count, shape[0]) if spec.bias else None,
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
