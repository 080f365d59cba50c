"""Recurrent operations as their definitions, token by token.

Rows of one sequence and its state come in; rows and the state after the last of them go out.
"""

import numpy as np

from ingot.backends.reference.rows import activate, sigmoid
from ingot.backends.reference.step import Matrix, Step, compute
from ingot.graph import ops as o


def causal_conv(
    x: Matrix, state: Matrix | None, weight: Matrix, bias: Matrix | None, *, silu: bool
) -> tuple[Matrix, Matrix]:
    """A convolution of each channel; the state is the last rows of its source."""
    before = weight.shape[1] - 1
    past = np.zeros((before, x.shape[1]), x.dtype) if state is None else state
    rows = np.concatenate([past, x])
    sums = np.stack([(rows[t : t + before + 1] * weight.T).sum(axis=0) for t in range(len(x))])
    if bias is not None:
        sums = sums + bias
    return activate(o.Activation.SILU, sums) if silu else sums, rows[len(x) :]


def state_scan(
    x: Matrix,
    step: Matrix,
    b: Matrix,
    c: Matrix,
    op: o.StateScan,
    state: Matrix | None,
    decay: Matrix,
    skip: Matrix,
) -> tuple[Matrix, Matrix]:
    """A state space; its state is [heads, channels of a head, states]."""
    size, of_group = op.x.width // op.heads, op.heads // op.groups
    h = np.zeros((op.heads, size, op.states), x.dtype) if state is None else state
    out = np.empty_like(x)
    for t in range(len(x)):
        channels = x[t].reshape(op.heads, size, 1)
        steps = step[t].reshape(op.heads, 1, 1)
        coming, seen = (
            row[t].reshape(op.groups, 1, op.states).repeat(of_group, axis=0) for row in (b, c)
        )
        h = np.exp(steps * decay.reshape(op.heads, 1, -1)) * h + steps * coming * channels
        shown = (h * seen).sum(axis=-1) + skip.reshape(op.heads, 1) * channels[..., 0]
        out[t] = shown.reshape(-1)
    return out, h


def delta_rule(
    query: Matrix,
    key: Matrix,
    value: Matrix,
    decay: Matrix,
    rate: Matrix,
    op: o.DeltaRule,
    state: Matrix | None,
) -> tuple[Matrix, Matrix]:
    """The gated delta rule, of what is left of a state and of the rate of change, per head.

    The state is [heads, key size, value size].
    """
    tokens, repeat = len(value), op.heads // op.key_heads
    q, k = (x.reshape(tokens, op.key_heads, op.key_size) for x in (query, key))
    q, k = (
        x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + x.dtype.type(op.epsilon)) for x in (q, k)
    )
    if op.tiled:
        q, k = (np.tile(x, (1, repeat, 1)) for x in (q, k))
    else:
        q, k = (x.repeat(repeat, axis=1) for x in (q, k))
    v = value.reshape(tokens, op.heads, op.value_size)
    s = np.zeros((op.heads, op.key_size, op.value_size), value.dtype) if state is None else state
    out = np.empty_like(v)
    for t in range(tokens):
        s = s * decay[t][:, None, None]
        known = np.einsum("hk,hkv->hv", k[t], s)
        s = s + k[t][:, :, None] * ((v[t] - known) * rate[t][:, None])[:, None, :]
        out[t] = np.einsum("hk,hkv->hv", q[t], s) / value.dtype.type(op.key_size**0.5)
    return out.reshape(value.shape), s


@compute.register
def _(op: o.CausalConv, step: Step) -> Matrix:
    past, weights = (
        step.cache.states.get(op.state),
        (step.weight(op.weight), step.optional(op.bias)),
    )
    out, past = causal_conv(step.value(op.source), past, *weights, silu=op.silu)
    step.cache.states[op.state] = past
    return out


@compute.register
def _(op: o.StateScan, step: Step) -> Matrix:
    x, steps, b, c = (step.value(value) for value in (op.x, op.step, op.b, op.c))
    past, weights = step.cache.states.get(op.state), (step.weight(op.decay), step.weight(op.skip))
    out, step.cache.states[op.state] = state_scan(x, steps, b, c, op, past, *weights)
    return out


@compute.register
def _(op: o.DeltaRule, step: Step) -> Matrix:
    query, key, value, steps, rate = (
        step.value(value) for value in (op.query, op.key, op.value, op.step, op.rate)
    )
    softplus = activate(o.Activation.SOFTPLUS, steps + step.weight(op.bias))
    decay = np.exp(step.weight(op.decay) * softplus)
    past = step.cache.states.get(op.state)
    out, step.cache.states[op.state] = delta_rule(query, key, value, decay, sigmoid(rate), op, past)
    return out
