"""What every operation is: a record that names its values, weights and constants by role.

The passes over a graph (checks, fusion, memory plan, cut, listing, drawing, hand-over to native
code) read an operation only through the roles of its fields and the methods of `Op`. They know no
particular operation, so a new one needs no change to them.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, StrEnum, auto
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ingot.graph.ops.neighbours import Neighbours

if TYPE_CHECKING:
    from ingot.graph.ops.experts import ExpertPart

__all__ = ["CacheUse", "KvLayer", "Op", "Record", "Role", "Value", "Weight"]


@dataclass(frozen=True, slots=True)
class Value:
    """A float32 matrix [tokens, width] that one operation writes."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor of the file and the shape it must have (rows first); or some of its rows."""

    name: str
    shape: tuple[int, ...]  # of what is read
    first_row: int = 0
    tensor_rows: int | None = None  # of the whole tensor, if only some are read

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """What the file must hold."""
        return (self.tensor_rows or self.shape[0], *self.shape[1:])

    @property
    def rows(self) -> slice:
        """The rows that are read."""
        return slice(self.first_row, self.first_row + self.shape[0])


@dataclass(frozen=True, slots=True)
class KvLayer:
    """What one layer keeps per token: a key and a value per head, and for how long.

    A layer of latents has one head and keeps its key alone: the value is the last elements of it.
    """

    heads: int
    head_size: int
    window: int  # positions that stay visible; 0: all of them
    shared_value: int = 0  # elements of the key that are the value; 0: a value is kept beside it

    @property
    def key_width(self) -> int:
        """Elements of all keys that are no values too."""
        return self.heads * self.head_size - self.shared_value

    @property
    def value_width(self) -> int:
        """Elements of all its values."""
        return self.shared_value or self.heads * self.head_size

    @property
    def rows(self) -> int:
        """Rows of `head_size` elements that it keeps of a token."""
        return self.heads if self.shared_value else 2 * self.heads


class Role(Enum):
    """What a field of a record means. A field without a role is a constant."""

    LAYER = auto()  # the layer of the network; None before the first and after the last
    INPUT = auto()  # a Value that is read
    OUTPUT = auto()  # a Value that is written
    MATRIX = auto()  # a Weight that inputs are multiplied by; it stays as the file stores it
    TABLE = auto()  # a Weight whose rows are looked up; it stays as the file stores it
    VECTOR = auto()  # a small Weight that is decoded to float32
    KV_LAYER = auto()  # an index into the graph's kv_layers
    STATE = auto()  # an index into the graph's recurrent states


# For `dataclasses.field(metadata=...)`.
LAYER = {"role": Role.LAYER}
INPUT = {"role": Role.INPUT}
OUTPUT = {"role": Role.OUTPUT}
MATRIX = {"role": Role.MATRIX}
TABLE = {"role": Role.TABLE}
VECTOR = {"role": Role.VECTOR}
KV_LAYER = {"role": Role.KV_LAYER}
STATE = {"role": Role.STATE}


class CacheUse(StrEnum):
    """What an operation does to what is kept of a sequence between steps."""

    WRITTEN = "written"
    READ = "read"
    MOVED_ON = "moved on"


def layer_prefix(layer: int | None, stack: str = "") -> str:
    """How the names of a layer's tensors and values begin in a GGUF file.

    If a model has two stacks of layers, the name of the stack comes first.
    """
    return "" if layer is None else f"{stack}blk.{layer}."


@cache
def _roles(kind: Any) -> tuple[tuple[str, Role | None], ...]:
    return tuple((f.name, f.metadata.get("role")) for f in fields(kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Fields with roles; parts of a record are records themselves, or tuples of them."""

    @classmethod
    def roles(cls) -> tuple[tuple[str, Role | None], ...]:
        """The names of the fields and their roles, in order."""
        kind: Any = cls
        return _roles(kind)

    def with_role(self, *wanted: Role) -> Iterator[Any]:
        """The fields that have one of these roles, in order, those of the parts included."""
        for name, role in self.roles():
            item = getattr(self, name)
            if role in wanted and item is not None:
                yield item
            for part in item if isinstance(item, tuple) else (item,):
                if isinstance(part, Record):
                    yield from part.with_role(*wanted)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Values read."""
        return tuple(self.with_role(Role.INPUT))

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Values written."""
        return tuple(self.with_role(Role.OUTPUT))

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Tensors of the file that are read."""
        return tuple(self.with_role(Role.MATRIX, Role.TABLE, Role.VECTOR))


@dataclass(frozen=True, slots=True, kw_only=True)
class Op(Record):
    """An operation: a record and what generic passes ask of it."""

    label: ClassVar[str]  # what a listing calls it
    colour: ClassVar[str] = "#f1f1f1"  # of its box in a drawing
    needs_all_tokens: ClassVar[bool] = False  # and not only those whose logits are wanted
    selects: ClassVar[bool] = False  # what it writes has rows for the wanted tokens only
    cache_use: ClassVar[CacheUse | None] = None

    layer: int | None = field(default=None, metadata=LAYER)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is special about it, in words; empty ones are left out."""
        return ()

    @property
    def token_ids(self) -> int:
        """How many token ids it can look up; 0 if it looks up none."""
        return 0

    @property
    def token_types(self) -> int:
        """How many types of tokens it tells apart; 0 if none."""
        return 0

    @property
    def sees_later_tokens(self) -> bool:
        """Whether a token's result depends on later tokens of its sequence."""
        return False

    @property
    def adapted_matrices(self) -> tuple[Weight, ...]:
        """Matrices whose products an adapter may add to, in order."""
        return ()

    @property
    def adapted_experts(self) -> "tuple[ExpertPart, ...]":
        """Matrices of experts whose products an adapter may add to, in order."""
        return ()

    @property
    def adapted_table(self) -> Weight | None:
        """A matrix whose rows are looked up by token id, and which an adapter may add to."""
        return None

    @property
    def is_adaptable(self) -> bool:
        """Whether an adapter may add to one of its matrices."""
        return bool(self.adapted_table or self.adapted_matrices or self.adapted_experts)

    @property
    def state_floats(self) -> int:
        """Floats that it keeps of a sequence between steps, beside keys and values."""
        return 0

    def fits(self) -> bool:
        """Whether widths, shapes and constants agree."""
        return self.same_width()

    def same_width(self) -> bool:
        """Whether all values have the same width."""
        return len({value.width for value in (*self.inputs, *self.outputs)}) == 1

    def check_cache(
        self, layers: Sequence[KvLayer], stored: set[int], encoded: Collection[int]
    ) -> None:
        """Raise a GraphError if it does not fit the cache; note in `stored` what it writes.

        An encoder has written the `encoded` layers.
        """

    def fuse(self, around: Neighbours) -> "Op | None":  # noqa: ARG002
        """The operation that takes its place, with the neighbours that it `take`s.

        None if it cannot run alone: another operation must take it.
        """
        return self

    def renumbered(self, kv_layers: int, states: int) -> Self:
        """The same in a graph without the first so many layers of the cache, and states."""
        first = {Role.KV_LAYER: kv_layers, Role.STATE: states}
        changes: dict[str, Any] = {
            name: getattr(self, name) - first[role] for name, role in self.roles() if role in first
        }
        return replace(self, **changes)

    def __str__(self) -> str:
        """The operation and the first value it writes, or else reads."""
        return f"{type(self).__name__} of {(*self.outputs, *self.inputs)[0].name}"


def times(scale: float) -> str:
    """A factor in words."""
    return f"times {scale:g}" if scale != 1 else ""


def plus_residual(residual: Value | None) -> str:
    """An added residual in words."""
    return "+ residual" if residual else ""
