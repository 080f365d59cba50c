"""From rows of logits to tokens: top-k, top-p, min-p, temperature and draw, as on the CPU.

The arithmetic is that of native/sampling/tail.cpp, addition for addition, so that the same logits
give the same token; it must be compiled without fused multiply-adds. A candidate is one 64-bit
number that compares as candidates do: the logit above, below it the id, the smaller one the larger
number. NaN counts as +inf, which the tail refuses; -inf is a banned token.
"""

import triton
import triton.language as tl

from ingot.backends import device_sampler

# Of a row; four each, so that all rows are well aligned.
INTS = tl.constexpr(4)  # likeliest tokens to draw from, tokens to leave at least, edits
FLOATS = tl.constexpr(4)  # temperature, repeat
DOUBLES = tl.constexpr(4)  # top-p's share, min-p's distance, the random number
EDITS = tl.constexpr(128)  # tokens of a row whose logits can be changed
MOST = tl.constexpr(256)  # of the likeliest: what one block of the CPU's sums holds

_NOT_FINITE = tl.constexpr(device_sampler.NOT_FINITE)
_NOTHING_LEFT = tl.constexpr(device_sampler.NOTHING_LEFT)
_LANES = tl.constexpr(16)  # running sums of a block
_COMPARED = tl.constexpr(32)  # candidates that all are compared with at once
_SIGN = tl.constexpr(-(2**31))
_NO_KEY = tl.constexpr(-(2**63))
_LAST_ID = tl.constexpr(2**31 - 1)
_INFINITE = tl.constexpr(0x7F800000)  # +inf and -inf as `_order` has them
_BANNED = tl.constexpr(-0x7F800001)
_TINY = tl.constexpr(2.0**-126)

_LOG2_E = tl.constexpr(float.fromhex("0x1.71547652b82fep+0"))
_LN2_HIGH = tl.constexpr(float.fromhex("0x1.62e42feep-1"))
_LN2_LOW = tl.constexpr(float.fromhex("0x1.a39ef35793c76p-33"))
_ROUND = tl.constexpr(float.fromhex("0x1.8p52"))
_LOWEST = tl.constexpr(-708.0)


@triton.jit
def _order(value):
    """Whole numbers that compare as floats do; both zeros are one, NaN is +inf."""
    value = tl.where(value < float("inf"), value, float("inf"))
    bits = tl.where(value == 0.0, 0.0, value).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & _LAST_ID)


@triton.jit
def _logit(order):
    """The float of such a number."""
    return (order ^ ((order >> 31) & _LAST_ID)).to(tl.float32, bitcast=True)


@triton.jit
def _key(order, id):
    return (order.to(tl.int64) << 32) | (id ^ _LAST_ID).to(tl.int64)


@triton.jit
def _token(key):
    """The id of a candidate, or why it is none."""
    order = (key >> 32).to(tl.int32)
    id = (key & 0xFFFFFFFF).to(tl.int32) ^ _LAST_ID
    refused = tl.where(order == _INFINITE, _NOT_FINITE, _NOTHING_LEFT)
    return tl.where((order == _INFINITE) | (order == _BANNED), refused, id)


@triton.jit
def _places(order, k):
    """For the k largest a place below k, for all others k or more; the first of equals first.

    Bit by bit the largest number that k of them reach is found; as soon as exactly k reach one,
    that will do.
    """
    least = tl.full((), 0, tl.int32)  # unsigned, that is with the sign turned
    reaching = tl.full((), 0, tl.int32) + order.numel
    bit = tl.full((), 31, tl.int32)
    while (bit >= 0) & (reaching != k):
        tried = least | (tl.full((), 1, tl.int32) << bit)
        count = tl.sum((order >= (tried ^ _SIGN)).to(tl.int32), axis=0)
        least = tl.where(count >= k, tried, least)
        reaching = tl.where(count >= k, count, reaching)
        bit -= 1
    above = order > (least ^ _SIGN)
    equal = order == (least ^ _SIGN)
    # Two counts in one pass: there are fewer than 2^15 numbers.
    ranks = tl.cumsum(above.to(tl.int32) + (equal.to(tl.int32) << 16), axis=0)
    more = tl.sum(above.to(tl.int32), axis=0)
    place = tl.where(equal, more + (ranks >> 16) - 1, k)
    return tl.where(above, (ranks & 0xFFFF) - 1, place)


@triton.jit
def _edit(logits, first, ints, floats, edited, lowered, SLICE: tl.constexpr):
    """Divide and lower the logits of the edited tokens of a slice, where they are."""
    at = tl.arange(0, EDITS)
    count, repeat = tl.load(ints + 2), tl.load(floats + 1)
    id = tl.load(edited + at, mask=at < count, other=-1)
    mine = (id >= first) & (id < first + SLICE)
    value = tl.load(logits + id, mask=mine, other=0.0)
    scaled = tl.where(value <= 0.0, value * repeat, tl.div_rn(value, repeat + tl.zeros_like(value)))
    tl.store(logits + id, scaled - tl.load(lowered + at, mask=mine, other=0.0), mask=mine)
    tl.debug_barrier()


@triton.jit
def shortlist_kernel(
    logits,
    ints,
    floats,
    edited,  # ids [rows, EDITS]
    lowered,  # by how much, [rows, EDITS]
    keys,  # out: [rows, slices, k]
    vocabulary,
    slices,
    SLICE: tl.constexpr,
):
    """A program finds the k likeliest tokens of a slice of a row; rows of k = 0 are left alone.

    Edits change the logits in place.
    """
    row = tl.program_id(1).to(tl.int64)
    k = tl.load(ints + row * INTS)
    if k > 0:
        first = tl.program_id(0) * SLICE
        logits += row * vocabulary
        if tl.load(ints + row * INTS + 2) > 0:
            _edit(
                logits,
                first,
                ints + row * INTS,
                floats + row * FLOATS,
                edited + row * EDITS,
                lowered + row * EDITS,
                SLICE,
            )
        id = first + tl.arange(0, SLICE)
        order = _order(tl.load(logits + id, mask=id < vocabulary, other=float("-inf")))
        out = keys + row * slices * MOST + tl.program_id(0) * k
        if k == 1:
            tl.store(out, tl.max(_key(order, id), axis=0))
        else:
            place = _places(order, k)
            tl.store(out + place, _key(order, id), mask=place < k)


@triton.jit
def _exp(x):
    """As in native/sampling/portable_math.h: 0 below -708."""
    counts = x > _LOWEST
    clamped = tl.where(counts, x, _LOWEST)
    shifted = clamped * _LOG2_E + _ROUND
    whole = shifted - _ROUND
    r = (clamped - whole * _LN2_HIGH) - whole * _LN2_LOW
    total = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0
    total = total * r + 1.0 / 39916800.0
    total = total * r + 1.0 / 3628800.0
    total = total * r + 1.0 / 362880.0
    total = total * r + 1.0 / 40320.0
    total = total * r + 1.0 / 5040.0
    total = total * r + 1.0 / 720.0
    total = total * r + 1.0 / 120.0
    total = total * r + 1.0 / 24.0
    total = total * r + 1.0 / 6.0
    total = total * r + 0.5
    total = total * r + 1.0
    total = total * r + 1.0
    bits = total.to(tl.int64, bitcast=True) + (shifted.to(tl.int64, bitcast=True) << 52)
    return tl.where(counts, bits.to(tl.float64, bitcast=True), 0.0)


@triton.jit
def _total(powers, count):
    """The sum of the first powers, in the CPU's order: 16 running sums, then in pairs."""
    lane = tl.arange(0, _LANES)
    sums = tl.zeros((_LANES,), tl.float64)
    for step in range((count + _LANES - 1) // _LANES):
        sums += tl.load(powers + step * _LANES + lane)
    sums = tl.sum(tl.reshape(sums, (2, 8)), axis=0)
    sums = tl.sum(tl.reshape(sums, (2, 4)), axis=0)
    sums = tl.sum(tl.reshape(sums, (2, 2)), axis=0)
    return tl.sum(sums, axis=0)


@triton.jit
def _reaching(logit, largest, count, share, work):
    """How many of the likeliest reach a share of the probability of `count` of them."""
    at = tl.arange(0, MOST)
    powers = tl.where(at < count, _exp(logit.to(tl.float64) - largest), 0.0)
    tl.store(work + at, powers)
    tl.debug_barrier()
    tl.store(work + MOST + at, powers / _total(work, count))
    tl.debug_barrier()
    reached = tl.full((), 0, tl.int32)
    passed = tl.full((), 0.0, tl.float64)
    while (reached < count) & (passed < share):
        passed += tl.load(work + MOST + reached)
        reached += 1
    return reached


@triton.jit
def _draw(logit, largest, count, uniform, work):
    """The index at which the running sum of the first `count` passes a share of their sum."""
    at = tl.arange(0, MOST)
    powers = tl.where(at < count, _exp(logit.to(tl.float64) - largest), 0.0)
    tl.store(work + at, powers)
    tl.debug_barrier()
    wanted = _total(work, count) * uniform
    drawn = tl.full((), 0, tl.int32)
    index = tl.full((), 0, tl.int32)
    passed = tl.full((), 0.0, tl.float64)
    while (index < count) & (passed <= wanted):
        power = tl.load(work + index)
        drawn = tl.where(power > 0.0, index, drawn)
        passed += power
        index += 1
    return drawn


@triton.jit
def _tail(order, k, least, floats, doubles, work):
    """Which of the candidates, likeliest first, is drawn."""
    at = tl.arange(0, MOST)
    count = tl.sum(((at < k) & (order > _BANNED)).to(tl.int32), axis=0)
    temperature = tl.load(floats)
    drawn = tl.full((), 0, tl.int32)
    if temperature >= _TINY:
        logit = tl.where(at < count, _logit(order), float("-inf"))
        top = tl.max(logit, axis=0)
        largest = top.to(tl.float64)
        share, distance = tl.load(doubles), tl.load(doubles + 1)
        if share <= 1.0:
            reached = _reaching(logit, largest, count, share, work)
            count = tl.minimum(tl.maximum(reached, least), count)
        if distance < float("inf"):
            near = (at < count) & (logit >= (largest - distance).to(tl.float32))
            count = tl.minimum(tl.maximum(tl.sum(near.to(tl.int32), axis=0), least), count)
        if temperature != 1.0:
            logit = tl.div_rn(logit - top, temperature + tl.zeros_like(logit))
            largest = tl.full((), 0.0, tl.float64)
        drawn = _draw(logit, largest, count, tl.load(doubles + 2), work + 2 * MOST)
    return drawn


@triton.jit
def _gather(keys, count, k, best, SIZE: tl.constexpr):
    """Bring the k largest of some keys together, in any order."""
    at = tl.arange(0, SIZE)
    key = tl.load(keys + at, mask=at < count, other=_NO_KEY)
    place = _places((key >> 32).to(tl.int32), k)
    tl.store(best + place, key, mask=place < k)
    tl.debug_barrier()


@triton.jit
def _sorted(best, k):
    """MOST keys, the largest first: the k that are there, each at the number of larger ones."""
    at = tl.arange(0, MOST)
    key = tl.load(best + at, mask=at < k, other=_NO_KEY)
    larger = tl.zeros((MOST,), tl.int32)
    for start in range(0, k, _COMPARED):
        other = start + tl.arange(0, _COMPARED)
        others = tl.load(best + other, mask=other < k, other=_NO_KEY)
        larger += tl.sum((others[None, :] > key[:, None]).to(tl.int32), axis=1)
    tl.store(best + MOST + larger, key, mask=at < k)
    tl.debug_barrier()
    return tl.load(best + MOST + at, mask=at < k, other=_NO_KEY)


@triton.jit
def sample_kernel(
    keys,  # [rows, slices, k]
    ints,
    floats,
    doubles,
    best,  # work: [rows, 2 * MOST]
    work,  # [rows, 3 * MOST]
    tokens,  # out: [rows], or why there is none
    slices,
    FEW: tl.constexpr,  # candidates of most rows
    MANY: tl.constexpr,  # of all rows
    SLICES: tl.constexpr,
):
    """A program samples the token of a row; those of k = 0 keep what they have."""
    row = tl.program_id(0).to(tl.int64)
    ints += row * INTS
    k = tl.load(ints)
    if k > 0:
        keys += row * slices * MOST
        if k == 1:
            slice = tl.arange(0, SLICES)
            found = tl.load(keys + slice, mask=slice < slices, other=_NO_KEY)
            tl.store(tokens + row, _token(tl.max(found, axis=0)))
        else:
            best += row * (2 * MOST)
            if slices * k <= FEW:
                _gather(keys, slices * k, k, best, FEW)
            else:
                _gather(keys, slices * k, k, best, MANY)
            key = _sorted(best, k)
            at = tl.arange(0, MOST)
            token = _token(tl.max(key, axis=0))
            if token >= 0:
                index = _tail(
                    (key >> 32).to(tl.int32),
                    k,
                    tl.load(ints + 1),
                    floats + row * FLOATS,
                    doubles + row * DOUBLES,
                    work + row * (3 * MOST),
                )
                token = _token(tl.max(tl.where(at == index, key, _NO_KEY), axis=0))
            tl.store(tokens + row, token)
