"""ComputationGraph: a network as an ordered list of operations.

Built once per model by `ingot.models`, run by a backend for every batch. It is checked
when it is made (see `ingot.graph.check`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ingot.graph.check import check
from ingot.graph.ops import CacheUse, KvLayer, Op, Role, Value, Weight


@dataclass(frozen=True)
class ComputationGraph:
    """Operations in the order they run, from token ids to logits (or to hidden rows)."""

    ops: tuple[Op, ...]
    logits: Value  # what comes out: a row for each token that is asked about
    kv_layers: tuple[KvLayer, ...]
    context_length: int
    hidden: bool = False  # what comes out are hidden rows, not logits
    # What comes out are scores of the text, in the row of its first token, or of its last one if
    # the network is causal.
    scores: bool = False
    # Of an encoder-decoder: what runs over a prompt, all of it at once. It has the same layers of
    # the cache, and stores those that this graph reads as encoded positions.
    encoder: "ComputationGraph | None" = None
    start_token: int | None = None  # what is decoded first, if there is an encoder
    # The residual stream before each layer and after the last one, for those who read hidden states
    streams: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        check(self.ops, self.logits, self.kv_layers, self.encoder.stored if self.encoder else ())

    def values(self) -> Iterator[Value]:
        """Every value, in the order they are written."""
        for op in self.ops:
            yield from op.outputs

    @property
    def all_ops(self) -> tuple[Op, ...]:
        """Its operations, after those of its encoder."""
        return (*self.encoder.ops, *self.ops) if self.encoder else self.ops

    @property
    def stored(self) -> frozenset[int]:
        """The layers of the cache that it writes."""
        written = (op for op in self.ops if op.cache_use is CacheUse.WRITTEN)
        return frozenset(number for op in written for number in op.with_role(Role.KV_LAYER))

    def weights(self) -> Iterator[Weight]:
        """Every tensor that is read, once each, in order of first use; an encoder's first."""
        seen: set[str] = set()
        for op in self.all_ops:
            for weight in op.weights:
                if weight.name not in seen:
                    seen.add(weight.name)
                    yield weight

    @cached_property
    def vocabulary_size(self) -> int:
        """Token ids that the embedding has rows for; 0 if rows are handed in instead."""
        return max(op.token_ids for op in self.ops)

    @cached_property
    def token_types(self) -> int:
        """Types of tokens that the embedding has rows for."""
        return max(op.token_types for op in self.ops)

    @property
    def width(self) -> int:
        """Elements of a token in the residual stream."""
        return self.ops[0].outputs[0].width

    @cached_property
    def states(self) -> tuple[int, ...]:
        """Floats that recurrent operations keep of a sequence, by the number of the state."""
        sizes = {number: op.state_floats for op in self.ops for number in op.with_role(Role.STATE)}
        return tuple(sizes[number] for number in range(len(sizes)))

    @cached_property
    def causal(self) -> bool:
        """Whether no token sees later ones; if some do, a sequence runs whole in one batch."""
        return not any(op.sees_later_tokens for op in self.ops)
