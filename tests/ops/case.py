"""A case: a graph of one or a few operations, how much of it to run, and how near it must be.

One row of the embedding holds all that an operation reads of a token, so that its inputs are
known exactly. The logits are the value under test.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import Enum, auto
from pathlib import Path
from typing import ClassVar

from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.graph.kv_type import KvType
from ops.small_graph import SmallGraph

Way = tuple[tuple[int, ...], int]  # chunks of the prompt, and tokens generated after it


class Gpu(Enum):
    """Where the GPU backend runs a case."""

    NOWHERE = auto()  # other cases there are enough
    REFUSED = auto()  # no kernel computes it
    DEVICE = auto()  # seconds in the interpreter
    INTERPRETER = auto()  # and on a device


@dataclass(frozen=True, kw_only=True)
class Case:
    """What all cases have; a family adds its sizes and `build`."""

    family: ClassVar[str]
    same_bits: ClassVar[bool] = False  # in every way to run it

    tokens: int = 7
    seed: int = 0
    threads: int = 1
    kv_type: KvType = KvType.F32
    gpu: Gpu = Gpu.NOWHERE
    expanded: bool = False  # the latents of prompts

    def __str__(self) -> str:
        """What differs from the usual."""
        changed = (f for f in fields(self) if getattr(self, f.name) != f.default)
        words = (f"{f.name}={_short(getattr(self, f.name))}" for f in changed if f.name != "gpu")
        return f"{type(self).__name__}({', '.join(words)})"

    def build(self) -> tuple[SmallGraph, o.Value]:
        """The graph and its logits."""
        raise NotImplementedError

    @property
    def ids(self) -> list[int]:
        """Token t's row of the embedding is t, if a case does not say otherwise."""
        return list(range(self.tokens))

    @property
    def ways(self) -> tuple[Way, ...]:
        """The ways to run the tokens as one sequence."""
        return (((), 0),)

    @property
    def together(self) -> bool:
        """Whether tokens also run as sequences of their own, in one step of a generation."""
        return False

    @property
    def context(self) -> int:
        """Positions of the cache."""
        return self.tokens + 5

    def bound(self, isa: str, way: Way) -> float:
        """The largest relative error on the CPU."""
        raise NotImplementedError

    @property
    def gpu_ways(self) -> tuple[Way, ...]:
        """Those of a GPU: the interpreter takes a second for a step."""
        return self.ways

    @property
    def gpu_bound(self) -> float:
        """The largest error on a GPU, in units of the usual size of a logit."""
        return 2e-3  # inputs and weights are rounded to 11 bits

    @contextmanager
    def opened(self, folder: Path) -> Iterator[tuple[ComputationGraph, GgufLoader]]:
        """The graph, and the file with its weights."""
        small, logits = self.build()
        graph, model = small.build(logits, folder / f"{self.family}.gguf")
        with model:
            yield graph, model


def _short(item: object) -> object:
    if isinstance(item, Enum):
        return item.name
    return f"{len(item)} numbers" if isinstance(item, tuple) and len(item) > 4 else item


@dataclass(frozen=True, kw_only=True)
class SmallCase(Case):
    """Operations on single rows: any tokens, a prompt in two pieces, and a generation."""

    IN_TILES: ClassVar[float] = 3e-2  # AMX rounds a prompt's weights and inputs to BF16

    name: str
    make: Callable[[SmallGraph], o.Value]  # adds the operations; returns the logits
    error: float
    quantized: bool = False

    def __str__(self) -> str:
        return self.name

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.seed)
        return small, self.make(small)

    @property
    def ids(self) -> list[int]:
        return [3, 0, 4, 4, 1, 2, 0][: self.tokens]

    @property
    def ways(self) -> tuple[Way, ...]:
        return ((3,), 0), ((), 3)

    @property
    def gpu_ways(self) -> tuple[Way, ...]:
        return (((), 1),)

    @property
    def context(self) -> int:
        return 1024

    def bound(self, isa: str, way: Way) -> float:  # noqa: ARG002
        return self.IN_TILES if self.quantized and isa == "amx" else self.error
