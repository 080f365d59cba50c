"""How much memory a model takes on the CPU: weights, KV cache and arena.

`estimate_memory` builds the graph and asks its cache layout and memory plan, which are what runs;
`estimate_copies` builds the CPU's program and asks it which matrices it copies. A file that cannot
be built (an unknown architecture, missing tensors) is estimated from its metadata:

    weights   the bytes of all tensors; they stay in the mapped file
    KV cache  per layer: tokens * kv_heads * (a key and a value as the KV type stores them);
              tokens is the context, and in a sliding-window layer at most
              window + batch; a recurrent layer (no heads) has one state instead, of
              4 bytes * (inner * states + (taps - 1) * (inner + 2 * groups * states))
    arena     batch * 4 bytes * (2 * embedding + the widest pair of a layer) + 4 bytes * vocabulary;
              the widest pair is the larger of queries + keys + values + attention output and of
              gate + up, or twice the inner size; the last term is one row of logits

Metadata do not say which layers slide if the architecture decides it; then this KV cache is an
upper bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ingot.errors import IngotError
from ingot.gguf import GgufLoader, Value
from ingot.graph.kv_type import KvType

if TYPE_CHECKING:
    from ingot.backends.cpu import Copies
    from ingot.graph import ComputationGraph

BATCH_TOKENS = 512  # tokens of a prompt in one step

_FLOAT = 4
_MAX_LAYERS = 10_000  # a damaged file must not keep us counting


@dataclass(frozen=True, slots=True)
class Layer:
    """The sizes of one layer that memory depends on."""

    heads: int
    kv_heads: int
    key_length: int
    value_length: int
    feed_forward: int
    window: int | None  # None: attention sees the whole context
    inner: int = 0  # channels of a recurrent layer
    state: int = 0  # bytes of its recurrent state

    def kv_bytes(self, tokens: int, kv_type: KvType) -> int:
        """Bytes of this layer's keys and values."""
        sizes = (self.key_length, self.value_length)
        return tokens * self.kv_heads * sum(kv_type.row_bytes(size) for size in sizes)

    @property
    def width(self) -> int:
        """Values per token that the wider half of the layer needs at once."""
        queries_and_output = self.heads * (self.key_length + self.value_length)
        keys_and_values = self.kv_heads * (self.key_length + self.value_length)
        return max(queries_and_output + keys_and_values, 2 * self.feed_forward, 2 * self.inner)


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes for one sequence that fills the context."""

    context: int
    batch: int
    kv_type: KvType
    weights: int
    kv_cache: int
    arena: int
    built: bool = False  # from the graph, not from metadata

    @property
    def total(self) -> int:
        """All three together."""
        return self.weights + self.kv_cache + self.arena


@dataclass(frozen=True, slots=True)
class ModelDimensions:
    """The sizes in a model's metadata."""

    layers: tuple[Layer, ...]
    embedding: int
    vocabulary: int
    context: int  # the longest that the model was trained for; 0 if the file does not say
    causal: bool
    unplaced_window: int | None  # a sliding window without the layers that have it

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Value]) -> "ModelDimensions | None":
        """Read them; None if the file does not describe a transformer."""
        arch = metadata.get("general.architecture")

        def one(key: str) -> int:
            value = metadata.get(f"{arch}.{key}")
            return value if type(value) is int and value >= 0 else 0

        count, embedding = one("block_count"), one("embedding_length")
        if not 0 < count <= _MAX_LAYERS or not embedding:
            return None

        def each(key: str, default: list[int]) -> list[int]:
            return _per_layer(metadata.get(f"{arch}.{key}"), count, default)

        zeros = [0] * count
        heads = each("attention.head_count", zeros)
        shares = [embedding // max(head, 1) for head in heads]
        used, expert_width = one("expert_used_count"), one("expert_feed_forward_length")
        inner, states, taps = (one(f"ssm.{k}") for k in ("inner_size", "state_size", "conv_kernel"))
        convolved = inner + 2 * one("ssm.group_count") * states
        state = _FLOAT * (inner * states + max(taps - 1, 0) * convolved)
        window = one("attention.sliding_window") or None
        slides = _sliding(metadata.get(f"{arch}.attention.sliding_window_pattern"), count)
        layers = zip(
            heads,
            each("attention.head_count_kv", heads),
            each("attention.key_length", shares),
            each("attention.value_length", shares),
            [
                max(dense, used * (expert_width or dense))
                for dense in each("feed_forward_length", zeros)
            ],
            [window if slide else None for slide in slides],
            [0 if head else inner for head in heads],
            [0 if head else state for head in heads],
            strict=True,
        )
        return cls(
            layers=tuple(Layer(*layer) for layer in layers),
            embedding=embedding,
            vocabulary=vocabulary_size(metadata),
            context=one("context_length"),
            causal=metadata.get(f"{arch}.attention.causal") is not False,
            unplaced_window=None if any(slides) else window,
        )

    def estimate(self, weights: int, context: int, kv_type: KvType) -> MemoryEstimate:
        """Memory for a context of that many tokens, from metadata alone; `weights` are bytes."""
        batch = min(context, BATCH_TOKENS)
        kv_cache = 0
        if self.causal:  # an encoder has no cache
            for layer in self.layers:
                tokens = context if layer.window is None else min(context, layer.window + batch)
                kv_cache += layer.kv_bytes(tokens, kv_type) + layer.state
        widest = max(layer.width for layer in self.layers)
        arena = 4 * (batch * (2 * self.embedding + widest) + self.vocabulary)
        return MemoryEstimate(context, batch, kv_type, weights, kv_cache, arena)


def estimate_memory(
    file: GgufLoader, context: int | None, kv_type: KvType
) -> MemoryEstimate | None:
    """Memory for one sequence of `context` tokens, by default the longest of the model.

    None if the file does not say enough.
    """
    weights = sum(tensor.nbytes for tensor in file.tensors.values())
    try:
        return _from_graph(file, weights, context, kv_type)
    except IngotError:  # it cannot run
        dimensions = ModelDimensions.from_metadata(file.metadata)
        tokens = context or (dimensions.context if dimensions else 0)
        return dimensions.estimate(weights, tokens, kv_type) if dimensions and tokens else None


def _from_graph(
    file: GgufLoader, weights: int, context: int | None, kv_type: KvType
) -> MemoryEstimate:
    from ingot.graph.kv_layout import KvLayout  # noqa: PLC0415 (`ingot list` needs none of these)
    from ingot.models import build_graph  # noqa: PLC0415

    graph = build_graph(file, context)
    tokens = context or graph.context_length
    batch = min(tokens, BATCH_TOKENS) if graph.causal else tokens
    layout = KvLayout.of(graph.kv_layers, kv_type, graph.states)
    blocks = (group.blocks_of(tokens, batch) * group.block_bytes for group in layout.groups)
    logits = _FLOAT * graph.logits.width
    arena = arena_bytes(graph, tokens) + logits
    return MemoryEstimate(tokens, batch, kv_type, weights, sum(blocks), arena, built=True)


def estimate_copies(file: GgufLoader) -> "Copies | None":
    """The copies of matrices that the CPU at hand makes, if memory allows it.

    None if it makes none, or cannot run the model.
    """
    from ingot.backends.cpu import Copies, CpuBackend  # noqa: PLC0415 (see above)
    from ingot.backends.precision import Precision  # noqa: PLC0415
    from ingot.config import config  # noqa: PLC0415
    from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout  # noqa: PLC0415
    from ingot.models import build_graph  # noqa: PLC0415

    try:
        graph = build_graph(file, BLOCK_TOKENS)
        # The least that a program needs; it reads no weights.
        backend = CpuBackend(
            graph,
            file,
            KvLayout.of(graph.kv_layers, KvType.F16, graph.states),
            blocks=1,
            states=1,
            context=BLOCK_TOKENS,
            threads=1,
            precision=Precision(config().precision),
            max_tokens=1,
        )
    except (IngotError, ValueError):  # the latter from the native program
        return None
    return Copies.of(backend, mapped=file.is_mapped)


def arena_bytes(graph: "ComputationGraph", context: int) -> int:
    """The arena of a graph for the largest step, and that of the encoder before it."""
    from ingot.graph.fusion import fuse  # noqa: PLC0415 (see above)
    from ingot.graph.memory_plan import MemoryPlan  # noqa: PLC0415

    batch = min(context, BATCH_TOKENS) if graph.causal else context
    own = MemoryPlan.of(fuse(graph)).size * batch
    return own + (arena_bytes(graph.encoder, context) if graph.encoder else 0)


def vocabulary_size(metadata: Mapping[str, Value]) -> int:
    """The number of tokens: those in the file, or what its metadata state."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if tokens is not None and not isinstance(tokens, (bool, int, float, str)):
        return len(tokens)
    stated = metadata.get(f"{metadata.get('general.architecture')}.vocab_size")
    return stated if type(stated) is int else 0


def _per_layer(value: Value | None, count: int, default: list[int]) -> list[int]:
    """A number for every layer: the file gives one for all, or an array with one for each."""
    if type(value) is int and value >= 0:
        return [value] * count
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and len(value) >= count:
        return [max(int(number), 0) for number in value[:count]]
    return default


def _sliding(pattern: Value | None, count: int) -> list[bool]:
    """Which layers slide: the pattern flags each, or says that every n-th does not."""
    if isinstance(pattern, np.ndarray) and pattern.dtype.kind in "biu" and len(pattern) >= count:
        return [bool(flag) for flag in pattern[:count]]
    if type(pattern) is int and pattern > 0:
        return [(layer + 1) % pattern != 0 for layer in range(count)]
    return [False] * count
