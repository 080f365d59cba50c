"""A linear layer of many tokens, straight from quantized weights: prompts, and large batches.

Inputs are half floats [tokens, columns]; a program takes 128 rows of the matrix and up to 256
tokens: a weight is unpacked once for all of them while the matrix units are busy with others. If
decoding shares the columns of the matrix out, a program takes a group of shares and adds them up
one by one; the program that comes last adds the groups. Sums are thus those of `linear.py`: a
token's result does not depend on how many others there are.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import additions, finish, paired_rows, part_of
from ingot.backends.gpu.kernels.order import start_next, wait_for_last
from ingot.backends.gpu.kernels.products import products
from ingot.backends.gpu.kernels.weights import ROWS

_TOGETHER = tl.constexpr(8)  # blocks of tokens


@triton.jit
def _place(columns):
    """The block of rows and the block of tokens of a program.

    Programs that run at the same time have some blocks of each, so both are read from the cache.
    """
    blocks = tl.num_programs(0) // columns
    first = tl.program_id(0) // (_TOGETHER * blocks) * _TOGETHER
    count = tl.minimum(columns - first, _TOGETHER)
    number = tl.program_id(0) - first * blocks
    return number // count, first + number % count


@triton.jit(do_not_specialize=["tokens"])
def linear_wide_kernel(
    inputs,
    tokens,
    first,
    weights,
    split,
    epilogue,
    TILE: tl.constexpr,
    FORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    ASM: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out = epilogue(weights @ x): a block of rows, a group of shares, a block of tokens."""
    BLOCK: tl.constexpr = TILE.rows
    COLS: tl.constexpr = TILE.columns
    SPLITS: tl.constexpr = TILE.splits
    GROUP: tl.constexpr = TILE.group
    block, column = _place(tl.cdiv(tokens - first, COLS))
    group = tl.program_id(1)
    rows = weights.rows
    row = paired_rows(block, BLOCK, GATED)
    here = column * COLS + tl.arange(0, COLS)  # of this launch
    token = first + here
    live = token < tokens
    tile = tl.minimum(row, rows - 1).to(tl.int64) // ROWS  # rows after the last are not stored
    start = token.to(tl.int64) * inputs.stride
    part = part_of(block * BLOCK, epilogue)
    steps = weights.chunks // TILE.unroll
    share = split.share // TILE.unroll
    wait_for_last(AHEAD)
    total = tl.zeros((BLOCK, COLS), tl.float32)
    for number in range(group * GROUP, tl.minimum(group * GROUP + GROUP, SPLITS)):
        total += products(
            inputs,
            start,
            live,
            weights,
            tile,
            row % ROWS,
            number * share,
            tl.minimum(number * share + share, steps),
            TILE,
            FORM,
            ASM,
            WHOLE=True,
        )
    start_next(AHEAD)
    if SPLITS <= GROUP:
        added = additions(row, token, tokens, part, epilogue)
        finish(
            total,
            added,
            block * BLOCK,
            token,
            tokens,
            part,
            epilogue,
            ACTIVATION,
            GATED,
            PAIRED=True,
        )
    else:
        GROUPS: tl.constexpr = (SPLITS + GROUP - 1) // GROUP
        sums_at = split.sums + here[None, :].to(tl.int64) * (rows * GROUPS) + row[:, None]
        ours = (row < rows)[:, None] & live[None, :]
        tl.store(sums_at + group * rows, total, mask=ours)
        tl.debug_barrier()
        counter = split.counters + tl.program_id(0)
        ticket = tl.atomic_add(counter, 1, sem="acq_rel")
        if ticket == GROUPS - 1:
            total = tl.zeros((BLOCK, COLS), tl.float32)
            for other in tl.static_range(GROUPS):
                total += tl.load(sums_at + other * rows, mask=ours, other=0.0, cache_modifier=".cg")
            tl.store(counter, 0)
            added = additions(row, token, tokens, part, epilogue)
            finish(
                total,
                added,
                block * BLOCK,
                token,
                tokens,
                part,
                epilogue,
                ACTIVATION,
                GATED,
                PAIRED=True,
            )
