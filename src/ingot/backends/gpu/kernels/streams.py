"""Several streams of a token, side by side in one row, and what moves between them (AltUp)."""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.order import start_next, wait_for_last


@triton.jit
def stack_streams_kernel(
    first,
    others,  # [tokens, others * width]
    out,  # [tokens, (1 + others) * width]
    width,
    epsilon,
    OTHERS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """One token a program: its first stream, then the others, each made as large as the first."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    row = tl.load(first + token * width + at, mask=inside, other=0.0)
    size = tl.sqrt(tl.sum(row * row) / width)
    place = out + token * (1 + OTHERS) * width + at
    tl.store(place, row, mask=inside)
    for number in tl.static_range(OTHERS):
        row = tl.load(others + (token * OTHERS + number) * width + at, mask=inside, other=0.0)
        own = tl.sqrt(tl.maximum(tl.sum(row * row) / width, epsilon))
        tl.store(place + (1 + number) * width, row * size / own, mask=inside)


@triton.jit
def mix_streams_kernel(
    x,
    gains,  # [tokens, streams * streams]
    out,
    width,  # of one stream
    STREAMS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out[i] = x[i] + the sum over j of gains[i, j] * x[j]."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    start = token * STREAMS * width + at
    for stream in tl.static_range(STREAMS):
        mixed = tl.zeros((BLOCK,), tl.float32)
        for other in tl.static_range(STREAMS):
            gain = tl.load(gains + (token * STREAMS + stream) * STREAMS + other)
            mixed += gain * tl.load(x + start + other * width, mask=inside, other=0.0)
        own = tl.load(x + start + stream * width, mask=inside, other=0.0)
        tl.store(out + start + stream * width, own + mixed, mask=inside)


@triton.jit
def correct_streams_kernel(
    x,
    row,  # [tokens, width]
    gains,  # [tokens, streams]
    out,
    width,  # of one stream
    active,
    STREAMS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out[i] = x[i] + (1 + gains[i]) * (row - x[active])."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    start = token * STREAMS * width + at
    change = tl.load(row + token * width + at, mask=inside, other=0.0)
    change -= tl.load(x + start + active * width, mask=inside, other=0.0)
    for stream in tl.static_range(STREAMS):
        gain = tl.load(gains + token * STREAMS + stream) + 1.0
        own = tl.load(x + start + stream * width, mask=inside, other=0.0)
        tl.store(out + start + stream * width, own + gain * change, mask=inside)


@triton.jit
def add_to_streams_kernel(
    x,
    row,  # [tokens, width]
    out,
    width,  # of one stream
    STREAMS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out = x, with row added to every stream but the first."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    start = token * STREAMS * width + at
    added = tl.load(row + token * width + at, mask=inside, other=0.0)
    for stream in tl.static_range(STREAMS):
        own = tl.load(x + start + stream * width, mask=inside, other=0.0)
        if stream > 0:
            own += added
        tl.store(out + start + stream * width, own, mask=inside)


@triton.jit
def mean_streams_kernel(
    x,
    out,
    width,  # of one stream
    STREAMS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out = the mean of the streams of x."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    total = tl.zeros((BLOCK,), tl.float32)
    for stream in tl.static_range(STREAMS):
        place = x + (token * STREAMS + stream) * width + at
        total += tl.load(place, mask=inside, other=0.0)
    tl.store(out + token * width + at, total / STREAMS, mask=inside)
