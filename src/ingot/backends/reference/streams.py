"""Streams of a token as their definitions."""

import numpy as np

from ingot.backends.reference.step import Matrix, Step, compute
from ingot.graph import ops as o


def _apart(rows: Matrix, width: int) -> Matrix:
    """[tokens, streams, width]."""
    apart: Matrix = rows.reshape(len(rows), -1, width)
    return apart


def _mean_square(streams: Matrix) -> Matrix:
    mean: Matrix = (streams * streams).mean(axis=-1, keepdims=True)
    return mean


@compute.register
def _(op: o.StackStreams, step: Step) -> Matrix:
    first = _apart(step.value(op.first), op.first.width)
    others = _apart(step.value(op.others), op.first.width)
    own = np.sqrt(np.maximum(_mean_square(others), step.dtype(op.epsilon)))
    scaled = others * np.sqrt(_mean_square(first)) / own
    return np.concatenate([first, scaled], axis=1).reshape(len(first), -1)


@compute.register
def _(op: o.MixStreams, step: Step) -> Matrix:
    source = _apart(step.value(op.source), op.source.width // op.streams)
    gains = _apart(step.value(op.gains), op.streams)
    return (source + gains @ source).reshape(len(source), -1)


@compute.register
def _(op: o.CorrectStreams, step: Step) -> Matrix:
    source = _apart(step.value(op.source), op.row.width)
    change = step.value(op.row) - source[:, op.active]
    gains = step.value(op.gains) + step.dtype(1)
    return (source + gains[..., None] * change[:, None]).reshape(len(source), -1)


@compute.register
def _(op: o.AddToStreams, step: Step) -> Matrix:
    streams = _apart(step.value(op.source), op.row.width).copy()
    streams[:, 1:] += step.value(op.row)[:, None]
    return streams.reshape(len(streams), -1)


@compute.register
def _(op: o.MeanStreams, step: Step) -> Matrix:
    mean: Matrix = _apart(step.value(op.source), op.out.width).mean(axis=1)
    return mean
