"""ComputationGraph: a network as an ordered list of operations.

Built once per model by `ingot.models`, run by a backend for every batch. It is checked
when it is made (see `ingot.graph.check`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ingot.graph.check import KvLayer, check
from ingot.graph.ops import Attend, Embed, Op, Value, Weight
from ingot.graph.states import state_sizes


@dataclass(frozen=True, slots=True)
class ComputationGraph:
    """Operations in the order they run, from token ids to logits (or to hidden rows)."""

    ops: tuple[Op, ...]
    logits: Value  # what comes out: a row for each token that is asked about
    kv_layers: tuple[KvLayer, ...]
    context_length: int
    hidden: bool = False  # what comes out are hidden rows, not logits
    scores: bool = False  # what comes out are scores of the text, in the row of its first token

    def __post_init__(self) -> None:
        check(self.ops, self.logits, self.kv_layers)

    def values(self) -> Iterator[Value]:
        """Every value, in the order they are written."""
        for op in self.ops:
            yield from op.outputs

    def weights(self) -> Iterator[Weight]:
        """Every tensor that is read, once each, in order of first use."""
        seen: set[str] = set()
        for op in self.ops:
            for weight in op.weights:
                if weight.name not in seen:
                    seen.add(weight.name)
                    yield weight

    @property
    def vocabulary_size(self) -> int:
        """Rows of the embedding; 0 where rows are handed in instead."""
        return next((op.weight.shape[0] for op in self.ops if isinstance(op, Embed)), 0)

    @property
    def width(self) -> int:
        """Elements of a token's state."""
        return next(op.weight.shape[1] for op in self.ops if isinstance(op, Embed))

    @property
    def states(self) -> tuple[int, ...]:
        """Floats that recurrent operations keep of a sequence, by the number of the state."""
        return state_sizes(self.ops)

    @property
    def causal(self) -> bool:
        """Whether no token sees later ones; if some do, a sequence runs whole in one batch."""
        return all(op.causal for op in self.ops if isinstance(op, Attend))
