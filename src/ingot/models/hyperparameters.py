"""What a model file says about its architecture, read the way an architecture file wants it.

`h.integer("block_count")` is the key `<architecture>.block_count`; a missing or mistyped
key is a `GgufError` that names it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingot.errors import ModelError
from ingot.gguf import Metadata
from ingot.graph import rope
from ingot.graph.ops import RopeLayout
from ingot.models.spec import RopeSpec


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """The keys of one architecture, and the rotary factors if the file has them."""

    architecture: str
    metadata: Metadata
    rope_factors: Sequence[float] | None = None

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number; it must be there if it has no default."""
        full = f"{self.architecture}.{key}"
        if default is None:
            return self.metadata.integer(full)
        return self.metadata.integer(full, default)

    def number(self, key: str, default: float | None = None) -> float:
        """A number; it must be there if it has no default."""
        full = f"{self.architecture}.{key}"
        if default is None:
            return self.metadata.number(full)
        return self.metadata.number(full, default)

    def per_layer(self, key: str, default: int | None = None) -> tuple[int, ...]:
        """A whole number for every layer: a list in the file, or one for all of them."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, np.ndarray):
            if len(value) != self.layers:
                raise ModelError(
                    f"{self.architecture}.{key} has {len(value)} entries for {self.layers} layers"
                )
            return tuple(int(item) for item in value)
        return (self.integer(key, default),) * self.layers

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.integer("block_count")

    @property
    def width(self) -> int:
        """Width of the residual stream."""
        return self.integer("embedding_length")

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return self.integer("vocab_size", len(self.metadata.strings("tokenizer.ggml.tokens")))

    @property
    def context_length(self) -> int:
        """Tokens the model was trained to see."""
        return self.integer("context_length")

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.integer("attention.head_count")

    @property
    def kv_heads(self) -> tuple[int, ...]:
        """Key and value heads of every layer."""
        return self.per_layer("attention.head_count_kv", self.heads)

    @property
    def head_size(self) -> int:
        """Elements of a head."""
        return self.integer("attention.key_length", self.width // self.heads)

    @property
    def rms_epsilon(self) -> float:
        """Epsilon of RMS norms."""
        return self.number("attention.layer_norm_rms_epsilon")

    @property
    def layer_epsilon(self) -> float:
        """Epsilon of layer norms."""
        return self.number("attention.layer_norm_epsilon")

    def rope(self, layout: RopeLayout) -> RopeSpec:
        """Rotary positions as the file asks for."""
        size, base = self._rope_size, self.number("rope.freq_base", 10000.0)
        scaling = self.metadata.string(f"{self.architecture}.rope.scaling.type", "none")
        factor = self.number("rope.scaling.factor", 1.0)
        yarn = None
        if scaling == "yarn":
            yarn = rope.Yarn(
                factor=factor,
                original_context=self.integer(
                    "rope.scaling.original_context_length", self.context_length
                ),
                beta_fast=self.number("rope.scaling.yarn_beta_fast", 32.0),
                beta_slow=self.number("rope.scaling.yarn_beta_slow", 1.0),
                attention_factor=self.number("rope.scaling.attn_factor", 1.0),
            )
        elif scaling not in {"none", "linear"}:
            raise ModelError(f"rotary scaling {scaling!r} is not known; none, linear and yarn are")
        speeds, magnitude = rope.frequencies(
            size,
            base,
            linear_factor=factor if scaling == "linear" else 1.0,
            yarn=yarn,
            factors=self.rope_factors,
        )
        return RopeSpec(speeds, layout, magnitude)

    def window_rope(self, layout: RopeLayout, base: float) -> RopeSpec:
        """Rotary positions of layers that see a window: never stretched, `base` if not given."""
        speeds, _ = rope.frequencies(self._rope_size, self.number("rope.freq_base_swa", base))
        return RopeSpec(speeds, layout)

    @property
    def _rope_size(self) -> int:
        return self.integer("rope.dimension_count", self.head_size)
