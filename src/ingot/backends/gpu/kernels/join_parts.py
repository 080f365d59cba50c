"""Join the parts of a sequence's past that `attend_generation_kernel` left, head by head.

One program a head and token. Where a token sees one part only, its attention is there already.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.attention import LOWEST, with_sink
from ingot.backends.gpu.kernels.epilogue import store_rounded
from ingot.backends.gpu.kernels.order import start_next, wait_for_last

MOST_PARTS = tl.constexpr(64)


@triton.jit
def join_parts_kernel(
    out,
    out_scale,
    first,
    positions,
    sinks,
    heads,
    parts,
    window,
    work_mixed,  # [tokens from first on, heads, parts, PADDED]
    work_best,  # [tokens, heads, parts]
    work_total,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    PART: tl.constexpr,
    SINKS: tl.constexpr,
    HALF: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """All parts are read at once."""
    head = tl.program_id(0)
    token = first + tl.program_id(1).to(tl.int64)
    position = tl.load(positions + token)
    oldest = 0
    if window > 0:
        oldest = tl.maximum(position - window + 1, 0)
    first_part = oldest // PART
    count = position // PART - first_part + 1
    wait_for_last(AHEAD)
    start_next(AHEAD)
    if count > 1:
        at = tl.arange(0, PADDED)
        number = tl.arange(0, MOST_PARTS)
        known = number < count
        place = (tl.program_id(1).to(tl.int64) * heads + head) * parts + first_part + number
        best = tl.load(work_best + place, mask=known, other=LOWEST)
        total = tl.load(work_total + place, mask=known, other=0.0)
        mixed = tl.load(
            work_mixed + place[:, None] * PADDED + at[None, :], mask=known[:, None], other=0.0
        )
        highest = tl.max(best, axis=0)
        share = tl.where(known, tl.exp2(best - highest), 0.0)
        one = tl.zeros((1,), tl.int32)
        write_mean(
            highest + tl.zeros((1,), tl.float32),
            tl.sum(total * share, axis=0) + tl.zeros((1,), tl.float32),
            tl.sum(mixed * share[:, None], axis=0)[None, :],
            sinks,
            one + head,
            one == 0,
            out + token * (heads * SIZE) + head * SIZE + at[None, :],
            (at < SIZE)[None, :],
            out_scale,
            SINKS,
            HALF,
        )


@triton.jit
def write_mean(
    best,  # [heads]
    total,
    mixed,  # [heads, PADDED]
    sinks,
    head,
    real,
    place,
    mask,
    out_scale,
    SINKS: tl.constexpr,
    HALF: tl.constexpr,
):
    """The weighted mean of the values."""
    if SINKS:
        shrink, total = with_sink(best, total, tl.load(sinks + head, mask=real, other=0.0))
        mixed *= shrink[:, None]
    total = tl.where(real, total, 1.0)
    store_rounded(place, mixed / total[:, None], out_scale, mask, HALF)
