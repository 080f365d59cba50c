"""The settings of a checkpoint: `config.json` as `transformers` writes it.

In: the decoded JSON and the defaults of an architecture. Out: typed values, and RoPE parameters in
one form (versions of `transformers` differ). A missing or mistyped setting is a `ConversionError`
that names it. This module does not know GGUF.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.errors import ConversionError

_ROPE_FIELDS = ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
_FULL = "full_attention"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a checkpoint; names with the same meaning are tried in order."""

    values: Mapping[str, Any]

    @classmethod
    def of(cls, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> "Settings":
        """The settings of a language model; those of a multimodal model are in `text_config`."""
        text = config.get("text_config")
        values = dict(defaults)
        for source in (config, text if isinstance(text, Mapping) else {}):
            values |= {name: value for name, value in source.items() if value is not None}
        return cls(values)

    def find(self, *names: str) -> Any:
        """The first of these settings that is there and not null, or None."""
        return next(
            (self.values[name] for name in names if self.values.get(name) is not None), None
        )

    def integer(self, *names: str, default: int | None = None) -> int:
        """A whole number; it must be there if it has no default."""
        value = self._required(names, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(names, value, "an integer")
        return value

    def number(self, *names: str, default: float | None = None) -> float:
        """A finite number; it must be there if it has no default."""
        value = self._required(names, default)
        if not _is_float(value):
            raise self._wrong(names, value, "a number")
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        """Yes or no."""
        value = self._required((name,), default)
        if not isinstance(value, bool):
            raise self._wrong((name,), value, "true or false")
        return value

    def per_layer(self, *names: str) -> int | list[int]:
        """A whole number, or one for each layer."""
        value = self._required(names, None)
        if not isinstance(value, list):
            return self.integer(*names)
        if len(value) != self.layers or not all(type(item) is int for item in value):
            raise self._wrong(names, value, f"an integer, or a list of {self.layers} integers")
        return value

    def numbers(self, name: str) -> list[float]:
        """A list of numbers."""
        return _number_list(name, self._required((name,), None))

    @property
    def width(self) -> int:
        """Width of the residual stream."""
        return self.positive("hidden_size", "n_embd", "n_embed", "d_model")

    @property
    def layers(self) -> int:
        """Number of layers."""
        kinds = self.find("layers_block_type", "hybrid_override_pattern")  # one for each layer
        listed = len(kinds) if isinstance(kinds, list | str) else None
        return self.positive(
            "num_hidden_layers", "n_layer", "num_layers", "n_layers", default=listed
        )

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.positive("num_attention_heads", "n_head")

    @property
    def kv_heads(self) -> int:
        """Key and value heads."""
        return self.positive("num_key_value_heads", "num_kv_heads", default=self.heads)

    @property
    def head_size(self) -> int:
        """Elements of a head."""
        return self.positive("head_dim", default=max(1, self.width // self.heads))

    def of_full_layers(self, name: str, own: str) -> int:
        """A size of layers without a window: one of the layer, a setting of its own, or this."""
        kinds, layers = self.find("layer_types"), self.find("per_layer_config")
        if isinstance(kinds, list) and isinstance(layers, Mapping) and _FULL in kinds:
            layer = layers.get(str(kinds.index(_FULL)))
            if isinstance(layer, Mapping) and name in layer:
                return Settings(layer).positive(name)
        return self.positive(own, name)

    def positive(self, *names: str, default: int | None = None) -> int:
        """A whole number of things there is at least one of."""
        value = self.integer(*names, default=default)
        if not 1 <= value < 2**31:
            raise self._wrong(names, value, "at least 1")
        return value

    @property
    def rope(self) -> Mapping[str, Any] | None:
        """The RoPE parameters of layers without a window, or None if there is no RoPE."""
        return self._rope(_FULL)

    @property
    def window_rope(self) -> Mapping[str, Any] | None:
        """The RoPE parameters of layers with a window, if they have their own."""
        return self._rope("sliding_attention")

    def _rope(self, layers: str) -> Mapping[str, Any] | None:
        stated = self.find("rope_parameters")
        if stated is None:
            scaling = self.find("rope_scaling") or {}
            if not isinstance(scaling, Mapping):
                raise self._wrong(("rope_scaling",), scaling, "an object")
            base = self.find("rope_theta", "rotary_emb_base")
            if layers != _FULL:
                own = self.find("rope_local_base_freq")
                return None if own is None else {"rope_theta": own, "rope_type": "default"}
            if base is None and not scaling:
                return None
            kind = scaling.get("rope_type", scaling.get("type", "default"))
            kind = "longrope" if kind == "su" else kind  # its first name
            stated = {**scaling, "rope_type": kind}
            if base is not None:
                stated["rope_theta"] = base
        if not isinstance(stated, Mapping):
            raise self._wrong(("rope_parameters",), stated, "an object")
        if _FULL in stated:
            stated = stated.get(layers)
            if stated is None:
                return None
            if not isinstance(stated, Mapping):
                raise self._wrong((f"rope_parameters of {layers}",), stated, "an object")
        elif layers != _FULL:
            return None
        outside = {name: self.values[name] for name in _ROPE_FIELDS if name in self.values}
        return {"rope_type": "default", **outside, **stated}

    def _required(self, names: Sequence[str], default: Any) -> Any:
        value = self.find(*names)
        if value is None:
            value = default
        if value is None:
            raise ConversionError(f"config.json has no {' or '.join(names)}")
        return value

    def _wrong(self, names: Sequence[str], value: object, wanted: str) -> ConversionError:
        name = next((name for name in names if name in self.values), names[0])
        return ConversionError(f"config.json: {name} is {value!r}; it must be {wanted}")


def rope_number(rope: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """A number of the RoPE parameters."""
    return Settings(rope).number(name, default=default)


def _is_float(value: Any) -> bool:
    """Whether it is a number that is finite as a float; a large integer may not be."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _number_list(name: str, value: Any) -> list[float]:
    numbers = value if isinstance(value, list) else None
    if numbers is None or not all(map(_is_float, numbers)):
        raise ConversionError(f"config.json: {name} must be a list of numbers")
    return [float(item) for item in numbers]
