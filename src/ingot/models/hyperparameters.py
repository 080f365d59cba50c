"""What a model file says about its architecture, read the way an architecture file wants it.

`h.integer("block_count")` is the key `<architecture>.block_count`; a missing or mistyped
key is a `GgufError` that names it, a number that no network has a `ModelError`, before
anything of that size is made.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingot.errors import ModelError
from ingot.gguf import Metadata
from ingot.graph import rope
from ingot.graph.ops import RopeLayout
from ingot.models.spec import RopeSpec

_MOST = 1 << 31  # tokens or elements; files say more only when they are damaged


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """The keys of one architecture, how many tensors there are, and rotary factors if any."""

    architecture: str
    metadata: Metadata
    tensors: int
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

    def size(self, key: str, default: int | None = None, *, most: int = _MOST) -> int:
        """A whole number of things there must be at least one of."""
        return self._within(key, self.integer(key, default), most)

    def per_layer(self, key: str, default: int | None = None) -> tuple[int, ...]:
        """Such a number for every layer: a list in the file, or one for all of them."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, np.ndarray):
            if len(value) != self.layers:
                raise ModelError(
                    f"{self.architecture}.{key} has {len(value)} entries for {self.layers} layers"
                )
            return tuple(self._within(key, int(item), _MOST) for item in value)
        return (self.size(key, default),) * self.layers

    def _within(self, key: str, number: int, most: int) -> int:
        if not 1 <= number <= most:
            raise self._wrong(key, number, f"1 to {most} in this file")
        return number

    def _wrong(self, key: str, number: float, must: str) -> ModelError:
        return ModelError(f"{self.architecture}.{key} is {number}; it must be {must}")

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.size("block_count", most=self.tensors)  # every layer has some

    @property
    def width(self) -> int:
        """Width of the residual stream."""
        return self.size("embedding_length")

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return self.size("vocab_size", len(self.metadata.strings("tokenizer.ggml.tokens")))

    @property
    def context_length(self) -> int:
        """Tokens the model was trained to see."""
        return self.size("context_length")

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.size("attention.head_count", most=self.width)

    @property
    def kv_heads(self) -> tuple[int, ...]:
        """Key and value heads of every layer; each serves as many query heads."""
        counts = self.per_layer("attention.head_count_kv", self.heads)
        for count in counts:
            if self.heads % count:
                raise ModelError(
                    f"{self.architecture}: {self.heads} query heads cannot share {count} key heads "
                    "evenly (attention.head_count, attention.head_count_kv)"
                )
        return counts

    @property
    def head_size(self) -> int:
        """Elements of a head."""
        return self.size("attention.key_length", self.width // self.heads)

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
        size, base = self._rope_size, self._positive("rope.freq_base", 10000.0)
        scaling = self.metadata.string(f"{self.architecture}.rope.scaling.type", "none")
        factor = self._positive("rope.scaling.factor", 1.0)
        yarn = None
        if scaling == "yarn":
            yarn = rope.Yarn(
                factor=factor,
                original_context=self.size(
                    "rope.scaling.original_context_length", self.context_length
                ),
                beta_fast=self._positive("rope.scaling.yarn_beta_fast", 32.0),
                beta_slow=self._positive("rope.scaling.yarn_beta_slow", 1.0),
                attention_factor=self._positive("rope.scaling.attn_factor", 1.0),
            )
        elif scaling not in {"none", "linear"}:
            raise ModelError(f"rotary scaling {scaling!r} is not known; none, linear and yarn are")
        speeds, magnitude = rope.frequencies(
            size,
            base,
            linear_factor=factor if scaling == "linear" else 1.0,
            yarn=yarn,
            factors=self._checked_factors(size // 2),
        )
        return RopeSpec(speeds, layout, magnitude)

    def window_rope(self, layout: RopeLayout, base: float) -> RopeSpec:
        """Rotary positions of layers that see a window: never stretched, `base` if not given."""
        speeds, _ = rope.frequencies(self._rope_size, self._positive("rope.freq_base_swa", base))
        return RopeSpec(speeds, layout)

    @property
    def _rope_size(self) -> int:
        turned = self.integer("rope.dimension_count", self.head_size)
        if turned not in range(0, self.head_size + 1, 2):
            even = f"an even number up to the size of a head, {self.head_size}"
            raise self._wrong("rope.dimension_count", turned, even)
        return turned

    def _positive(self, key: str, default: float) -> float:
        number = self.number(key, default)
        if not 0.0 < number < math.inf:
            raise self._wrong(key, number, "a positive number")
        return number

    def _checked_factors(self, pairs: int) -> Sequence[float] | None:
        factors = self.rope_factors
        if factors is not None and (
            len(factors) != pairs or not all(0.0 < factor < math.inf for factor in factors)
        ):
            raise ModelError(f"rope_freqs.weight must hold {pairs} positive numbers, one per pair")
        return factors
