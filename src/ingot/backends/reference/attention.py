"""Rotary embedding, the KV cache and attention as their definitions."""

import numpy as np
from numpy.typing import NDArray

from ingot.backends.reference.rows import softcap, softmax
from ingot.backends.reference.step import Ints, Matrix, Step, compute
from ingot.graph import ops as o


def rope(x: Matrix, positions: Ints, op: o.Rotary, head_size: int) -> Matrix:
    """Rotate pairs of elements of every head."""
    angles = np.outer(positions, op.frequencies)[:, None, :]  # [tokens, 1, pairs], float64
    cos = (np.cos(angles) * op.magnitude).astype(x.dtype)
    sin = (np.sin(angles) * op.magnitude).astype(x.dtype)
    out = x.reshape(len(x), -1, head_size).copy()
    pairs = len(op.frequencies)
    if op.layout is o.RopeLayout.INTERLEAVED:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    else:
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    a, b = out[..., first].copy(), out[..., second].copy()
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out.reshape(x.shape)


def attend(
    query: Matrix,
    keys: Matrix,
    values: Matrix,
    positions: Ints,
    op: o.Attend,
    sinks: Matrix | None = None,
    bias: Matrix | None = None,
    encoded: int = 0,
    chosen: Matrix | None = None,
) -> Matrix:
    """Attention over the cache [positions, kv width], whose first positions may be `encoded`."""
    if op.seen is o.SeenPart.ENCODED:
        keys, values = keys[:encoded], values[:encoded]
    tokens, size = len(query), query.shape[1] // op.heads
    repeat = op.heads // op.kv_heads
    q = query.reshape(tokens, op.heads, size).transpose(1, 0, 2)
    k = keys.reshape(len(keys), op.kv_heads, -1).transpose(1, 0, 2).repeat(repeat, axis=0)
    v = values.reshape(len(values), op.kv_heads, -1).transpose(1, 0, 2).repeat(repeat, axis=0)
    scores: Matrix = q @ k.transpose(0, 2, 1)  # [heads, tokens, positions]
    scores = scores * query.dtype.type(op.scale)
    if op.softcap:
        scores = softcap(scores, op.softcap)
    distance = positions[:, None] - np.arange(len(keys))[None, :]
    if op.bias and bias is not None:
        reach = op.bias.reach
        buckets = np.asarray(op.bias.buckets)[np.clip(-distance, -reach, reach) + reach]
        scores = scores + bias[buckets].transpose(2, 0, 1)
    if op.slopes:
        slopes = np.asarray(op.slopes, query.dtype)[:, None, None]
        scores = scores - slopes * np.abs(distance).astype(query.dtype)
    causal = op.causal and op.seen is not o.SeenPart.ENCODED
    hidden = distance < 0 if causal else np.zeros(distance.shape, bool)
    if op.seen is o.SeenPart.DECODED:
        hidden[:, :encoded] = True
    if op.window and not op.causal:
        hidden |= np.abs(distance) > op.window // 2
    elif op.chunked:
        hidden |= np.arange(len(keys))[None, :] < (positions - positions % op.window)[:, None]
    elif op.window:
        hidden |= distance >= op.window
    if chosen is not None:
        hidden |= ~_among(chosen, len(keys))
    scores[:, hidden] = -np.inf
    if sinks is not None:
        extra = np.broadcast_to(sinks[:, None, None], (op.heads, tokens, 1))
        weights = softmax(np.concatenate([scores, extra], axis=-1))[..., :-1]
    else:
        weights = softmax(scores)
    mixed: Matrix = weights @ v
    return mixed.transpose(1, 0, 2).reshape(tokens, -1)


def _among(chosen: Matrix, positions: int) -> NDArray[np.bool_]:
    """Which positions are chosen, of every token."""
    seen = np.zeros((len(chosen), positions + 1), bool)
    np.put_along_axis(seen, chosen.astype(np.int64), True, axis=1)  # -1 is the one after the last
    return seen[:, :-1]


@compute.register
def _(op: o.Rope, step: Step) -> Matrix:
    return rope(step.value(op.source), step.positions, op.rotary, op.head_size)


@compute.register
def _(op: o.WriteKv, step: Step) -> None:
    key, value = step.value(op.key), step.value(op.value)
    step.cache.store(op.kv_layer, np.concatenate([key, value], axis=1) if op.shared else key, value)


@compute.register
def _(op: o.Attend, step: Step) -> Matrix:
    keys, values = step.cache.keys[op.kv_layer], step.cache.values[op.kv_layer]
    query, sinks = step.value(op.query), step.optional(op.sinks)
    bias = step.weight(op.bias.weight) if op.bias else None
    chosen = step.value(op.chosen) if op.chosen else None
    encoded = step.cache.encoded
    return attend(query, keys, values, step.positions, op, sinks, bias, encoded, chosen)


@compute.register
def _(op: o.ChoosePositions, step: Step) -> Matrix:
    # A key that holds its value is kept whole.
    query, keys = step.value(op.query), step.cache.keys[op.kv_layer]
    heads = query.reshape(len(query), op.heads, -1)
    matches = np.maximum(heads @ keys.T, 0)  # [tokens, heads, positions]
    scores = (step.value(op.head_weights)[:, None, :] @ matches)[:, 0, :]
    out = np.full((len(query), op.out.width), -1, step.dtype)
    for row, score, position in zip(out, scores, step.positions, strict=True):
        seen = score[: position + 1]
        best = np.argsort(-seen, kind="stable")[: len(row)]
        row[: len(best)] = np.sort(best)
    return out


@compute.register
def _(op: o.HeadLinear, step: Step) -> Matrix:
    heads = step.value(op.source).reshape(-1, op.heads, op.source.width // op.heads)
    matrices = step.weight(op.weight).reshape(op.heads, -1, op.weight.shape[-1])
    matrices = matrices[:, op.first : op.first + op.rows]
    mapped = "thc,hcr->thr" if op.transposed else "thc,hrc->thr"
    made = np.einsum(mapped, heads[..., : op.inputs_of_head], matrices)
    return np.concatenate([heads[..., op.inputs_of_head :], made], axis=-1).reshape(len(heads), -1)


@compute.register
def _(op: o.Temper, step: Step) -> Matrix:
    factor = 1 + op.scale * np.log1p((step.positions + op.offset) // op.length)
    return step.value(op.source) * factor[:, None].astype(step.dtype)


@compute.register
def _(op: o.PickHeads, step: Step) -> Matrix:
    heads = step.value(op.source).reshape(-1, op.heads, op.source.width // op.heads)
    last = op.first + op.out.width // op.heads
    return heads[..., op.first : last].reshape(len(heads), -1)
