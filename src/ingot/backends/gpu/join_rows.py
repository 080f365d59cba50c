"""What a layer that guesses takes: rows that are on the device, and embeddings beside them.

Such a layer begins with rows of tokens and hidden states side by side (`ingot.models.lower_draft`,
`lower_mtp`). A graph of it comes in; one goes out that makes these rows itself, of token ids and
of hidden states that lie where `TakeRows` left them. So nothing of a guess waits for the host.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import triton

from ingot.backends.gpu.kernels.join_rows import JoinedParts, join_rows_kernel
from ingot.backends.gpu.lowering import Context, Launch, Step, launch_of
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.graph.ops.record import INPUT, OUTPUT, VECTOR

_WARPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRows(o.Op):
    """out = norm(token), norm(hidden), and hidden again if it is as wide as three of them."""

    label: ClassVar[str] = "join rows"

    token: o.Value = field(metadata=INPUT)
    hidden: o.Value = field(metadata=INPUT)
    out: o.Value = field(metadata=OUTPUT)
    token_norm: o.Weight = field(metadata=VECTOR)
    hidden_norm: o.Weight = field(metadata=VECTOR)
    epsilon: float

    def fits(self) -> bool:
        """Two or three parts of the same width."""
        width = self.token.width
        return self.hidden.width == width and self.out.width in (2 * width, 3 * width)


def joined_graph(
    graph: ComputationGraph,
    table: o.Weight,
    token_norm: o.Weight,
    hidden_norm: o.Weight,
    epsilon: float,
) -> ComputationGraph:
    """The graph that begins with hidden states, and joins the embeddings of tokens to them."""
    first, *rest = graph.ops
    assert isinstance(first, o.TakeRows), "it begins with joined rows"
    width = table.shape[1]
    token, hidden = o.Value("joined.token", width), o.Value("joined.hidden", width)
    joined = JoinRows(
        token=token,
        hidden=hidden,
        out=first.out,
        token_norm=token_norm,
        hidden_norm=hidden_norm,
        epsilon=epsilon,
    )
    begun = (o.TakeRows(out=hidden), o.Embed(weight=table, out=token), joined)
    return replace(graph, ops=(*begun, *rest))


@launch_of.register
def take_rows(op: o.TakeRows, context: Context) -> Launch:
    """Nothing: before a step rows are put where the value lies (`GpuBackend.put_rows`)."""
    del op, context
    return lambda _: None


@launch_of.register
def join_rows(op: JoinRows, context: Context) -> Launch:
    """Embeddings and hidden states side by side."""
    values, vectors = context.values, context.vectors
    norms = vectors.get(op.token_norm), vectors.get(op.hidden_norm)
    assert norms[0] is not None, "there is a weight"
    assert norms[1] is not None, "there is a weight"
    parts = JoinedParts(values.tensor(op.token), values.tensor(op.hidden), *norms, op.epsilon)
    out, width, stride = values.tensor(op.out), op.token.width, op.out.width

    def launch(step: Step) -> None:
        step.start(
            join_rows_kernel,
            (stride // width, step.inputs.tokens),
            parts=parts,
            out=out,
            width=width,
            stride=stride,
            BLOCK=triton.next_power_of_2(width),
            num_warps=_WARPS,
            **context.order,
        )

    return launch
