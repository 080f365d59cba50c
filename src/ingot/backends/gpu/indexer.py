"""An indexer chooses the positions of latents that a token sees, and attention to those alone.

`StoreKv` keeps the indexer's keys as latents and leaves its rotated queries where those of
attention lie (`latents.py`). The scores of some tokens are in memory of their own between the two
kernels that make them and choose.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.cache_layers import LayerCache
from ingot.backends.gpu.kernels.indexer import (
    attend_chosen_kernel,
    choose_kernel,
    score_positions_kernel,
)
from ingot.backends.gpu.latents import (
    WARPS,
    decoded_rows,
    latent_attention,
    latent_form,
    latent_tile,
)
from ingot.backends.gpu.lowering import Context, Launch, Step, launch_of
from ingot.backends.gpu.memory import DeviceMemory
from ingot.graph import ops as o
from ingot.graph.kv_layout import whole_blocks

_WORK_BYTES = 64 << 20  # of scores, if the fewest tokens do not take more
_FEWEST_TOKENS = 16
CHOICE_SPAN = 1024  # scores that are looked at together
CHOICE_WARPS = 4


@dataclass(frozen=True, slots=True)
class IndexWork:
    """The scores of the tokens of one launch."""

    scores: torch.Tensor  # float32 [tokens, stride], flat
    stride: int

    @property
    def tokens(self) -> int:
        """Tokens of one launch."""
        return int(self.scores.numel()) // self.stride

    @classmethod
    def of(
        cls, memory: DeviceMemory, ops: Sequence[o.ChoosePositions], context: int, tokens: int
    ) -> "IndexWork | None":
        """Memory for steps of so many tokens; None if nothing is chosen."""
        if not ops:
            return None
        stride = whole_blocks(context)
        fit = min(tokens, _WORK_BYTES // (4 * stride)) // _FEWEST_TOKENS * _FEWEST_TOKENS
        rows = max(_FEWEST_TOKENS, fit)
        return cls(memory.pool(4 * rows * stride).memory.view(torch.float32), stride)


@launch_of.register
def choose_positions(op: o.ChoosePositions, context: Context) -> Launch:
    """Score all positions and choose the best."""
    work, values = context.memory.indexer, context.values
    assert work is not None, "it is planned for such an op"
    type, device = context.layout.type, context.device
    cache = LayerCache.of(context.layout, op.kv_layer, context)
    form = latent_form(cache, context.plan.graph.kv_layers[op.kv_layer])
    tile = latent_tile(form, decoded_rows(op.heads), type, device)
    head_weights, chosen = values.tensor(op.head_weights), values.tensor(op.out)

    def launch(step: Step) -> None:
        inputs = step.inputs
        for first in range(0, inputs.tokens, work.tokens):
            count = min(work.tokens, inputs.tokens - first)
            step.start(
                score_positions_kernel,
                (triton.cdiv(context.plan.context, tile.span), count),
                query=context.memory.rotated,
                head_weights=head_weights,
                scores=work.scores,
                stride=work.stride,
                first=first,
                positions=inputs.positions,
                sequences=inputs.sequences,
                cache=cache.view(inputs),
                heads=op.heads,
                choices=op.out.width,
                ROWS=tile.rows,
                SPAN=tile.span,
                FORM=form,
                num_warps=WARPS,
            )
            step.start(
                choose_kernel,
                (count,),
                scores=work.scores,
                chosen=chosen,
                stride=work.stride,
                first=first,
                positions=inputs.positions,
                choices=op.out.width,
                SPAN=CHOICE_SPAN,
                num_warps=CHOICE_WARPS,
            )

    return launch


def attend_chosen(op: o.Attend, chosen: o.Value, context: Context) -> Launch:
    """Attention over latents at the positions that each token has chosen."""
    type, device = context.layout.type, context.device
    cache = LayerCache.of(context.layout, op.kv_layer, context)
    form = latent_form(cache, context.plan.graph.kv_layers[op.kv_layer])
    attention, positions = latent_attention(op, context), context.values.tensor(chosen)
    # Few heads to a program when decoding: there are few tokens to share the work.
    prompt, generation = (
        latent_tile(form, rows, type, device) for rows in (decoded_rows(op.heads), decoded_rows(1))
    )

    def launch(step: Step) -> None:
        tile = prompt if step.phase is ExecutionPhase.PROMPT else generation
        step.start(
            attend_chosen_kernel,
            (triton.cdiv(op.heads, tile.rows), step.inputs.tokens),
            query=context.memory.rotated,
            chosen=positions,
            positions=step.inputs.positions,
            sequences=step.inputs.sequences,
            cache=cache.view(step.inputs),
            attention=attention,
            choices=chosen.width,
            ROWS=tile.rows,
            SPAN=tile.span,
            FORM=form,
            num_warps=WARPS,
        )

    return launch
