"""Cases of operations on several streams of a token."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import ClassVar

import numpy as np

from ingot.graph import ops as o
from ops.case import Gpu, SmallCase
from ops.small_graph import SmallGraph

NEAR = 1e-5


@dataclass(frozen=True, kw_only=True)
class StreamsCase(SmallCase):
    """Operations on streams."""

    family: ClassVar[str] = "streams"

    error: float = NEAR
    gpu_bound: float = 8e-3  # inputs are rounded to 11 bits, and some are large


def stacked(small: SmallGraph, width: int, streams: int) -> o.Value:
    """Streams of all sizes, one of them so small that epsilon decides, one of zeros."""
    rows = small.random(5, streams * width)
    rows[1, width:] *= 1e-4
    rows[2, width:] = 0
    rows[3, :width] *= 100
    x = small.embed(rows)
    first, others = small.pick(x, 0, width), small.pick(x, width, streams * width)
    out = small.value(streams * width)
    small.ops.append(o.StackStreams(first=first, others=others, out=out, epsilon=1e-5))
    return small.select(out)


def mixed(small: SmallGraph, width: int, streams: int) -> o.Value:
    x = small.embed(small.random(5, streams * (width + streams)))
    source = small.pick(x, 0, streams * width)
    gains = small.pick(x, streams * width, x.width)
    out = small.value(source.width)
    small.ops.append(o.MixStreams(source=source, gains=gains, out=out, streams=streams))
    return small.select(out)


def corrected(small: SmallGraph, width: int, streams: int, active: int) -> o.Value:
    x = small.embed(small.random(5, streams * width + width + streams))
    ends = np.cumsum([0, streams * width, width, streams]).tolist()
    source, row, gains = (small.pick(x, begin, end) for begin, end in pairwise(ends))
    out = small.value(source.width)
    small.ops.append(o.CorrectStreams(source=source, row=row, gains=gains, out=out, active=active))
    return small.select(out)


def added(small: SmallGraph, width: int, streams: int) -> o.Value:
    x = small.embed(small.random(5, (streams + 1) * width))
    source, row = small.pick(x, 0, streams * width), small.pick(x, streams * width, x.width)
    out = small.value(source.width)
    small.ops.append(o.AddToStreams(source=source, row=row, out=out))
    return small.select(out)


def mean(small: SmallGraph, width: int, streams: int) -> o.Value:
    x = small.embed(small.random(5, streams * width))
    out = small.value(width)
    small.ops.append(o.MeanStreams(source=x, out=out))
    return small.select(out)


SIZES = [(1, 2), (17, 4), (100, 3)]
ON_GPU = SIZES[1:2]
CASES = [
    *(
        StreamsCase(
            name=f"{make.__name__}-{width}-{streams}",
            make=partial(make, width=width, streams=streams),
            gpu=Gpu.INTERPRETER if (width, streams) in ON_GPU else Gpu.NOWHERE,
        )
        for make in (stacked, mixed, added, mean)
        for width, streams in SIZES
    ),
    *(
        StreamsCase(
            name=f"corrected-{width}-{streams}",
            make=partial(corrected, width=width, streams=streams, active=streams - 1),
            gpu=Gpu.INTERPRETER if (width, streams) in ON_GPU else Gpu.NOWHERE,
        )
        for width, streams in SIZES
    ),
]
