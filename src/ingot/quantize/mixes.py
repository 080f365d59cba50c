"""Which type each tensor of a model gets: llama.cpp's mixes (Q4_K_M and the like).

In: the name of a mix, and the names and shapes of all tensors. Out: a type for each tensor. The
rules are those of llama.cpp's quantizer, so that a mix has the same size here and there. This module
reads no weights.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ingot.errors import QuantError
from ingot.gguf import GgmlType as T


@dataclass(frozen=True, slots=True)
class Mix:
    """A mix: the type of most tensors, and its number in `general.file_type`."""

    name: str
    base: T
    file_type: int

    @property
    def is_plain(self) -> bool:
        """Whether nothing is quantized."""
        return self.base in (T.F32, T.F16, T.BF16)


def _mixes() -> dict[str, Mix]:
    rows = (
        ("F32", T.F32, 0), ("F16", T.F16, 1), ("BF16", T.BF16, 32),
        ("Q8_0", T.Q8_0, 7), ("Q4_0", T.Q4_0, 2), ("Q4_1", T.Q4_1, 3),
        ("Q5_0", T.Q5_0, 8), ("Q5_1", T.Q5_1, 9),
        ("Q2_K", T.Q2_K, 10), ("Q2_K_S", T.Q2_K, 21),
        ("Q3_K_S", T.Q3_K, 11), ("Q3_K_M", T.Q3_K, 12), ("Q3_K_L", T.Q3_K, 13),
        ("Q4_K_S", T.Q4_K, 14), ("Q4_K_M", T.Q4_K, 15),
        ("Q5_K_S", T.Q5_K, 16), ("Q5_K_M", T.Q5_K, 17), ("Q6_K", T.Q6_K, 18),
        ("IQ4_NL", T.IQ4_NL, 25), ("IQ4_XS", T.IQ4_XS, 30),
        ("TQ1_0", T.TQ1_0, 36), ("TQ2_0", T.TQ2_0, 37), ("MXFP4_MOE", T.MXFP4, 38),
    )  # fmt: skip
    return {name: Mix(name, base, number) for name, base, number in rows}


MIXES: Final[Mapping[str, Mix]] = MappingProxyType(_mixes())
_SHORT_NAMES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "MXFP4": "MXFP4_MOE"}

# What stays as it is, because it is small or sensitive.
_KEPT = re.compile(
    r".*_norm\.weight|.*ffn_gate_inp\.weight|.*ffn_gate_inp_shexp\.weight|.*ssm_conv1d\.weight"
    r"|position_embd\.weight|token_types\.weight|rope_.*|.*attn_sinks\.weight|cls.*"
)


def mix_of(name: str) -> Mix:
    """The mix of a name; case does not matter."""
    upper = name.upper()
    upper = _SHORT_NAMES.get(upper, upper)
    if upper not in MIXES:
        raise QuantError(f"unknown type {name!r}; the types are {', '.join(MIXES)}")
    return MIXES[upper]


def is_quantizable(name: str, shape: Sequence[int]) -> bool:
    """Whether a tensor is a matrix that mixes apply to; all others are float32."""
    return len(shape) > 1 and name.endswith(".weight") and _KEPT.fullmatch(name) is None


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the rules ask about a model."""

    architecture: str
    layers: int
    experts: int = 0
    queries_per_key: int = 1
    tied: bool = False  # no `output.weight`

    @property
    def is_large_llama(self) -> bool:
        """Llama 2 70B and its like: 80 layers, 8 queries for a key."""
        return self.layers == 80 and self.architecture == "llama"


def choose_types(
    mix: Mix, model: ModelShape, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, T]:
    """The type of each tensor that a mix applies to."""
    if mix.base in (T.F32, T.F16, T.BF16, T.TQ1_0, T.TQ2_0):
        rule: Callable[[str, tuple[int, ...]], T] = _Plain(mix, model)
    elif mix.base is T.MXFP4:
        rule = _Experts()
    else:
        rule = _Rules(mix, model, shapes)
    return {
        name: fitting(rule(name, shape), shape[-1])
        for name, shape in shapes.items()
        if is_quantizable(name, shape)
    }


def fitting(kind: T, columns: int) -> T:
    """The type, or the next one whose blocks divide the rows."""
    if columns % kind.block_size == 0:
        return kind
    instead = _INSTEAD.get(kind, T.F16)
    return instead if columns % instead.block_size == 0 else T.F16


_INSTEAD: Final = MappingProxyType(
    {
        T.TQ1_0: T.Q4_0, T.TQ2_0: T.Q4_0,
        T.Q2_K: T.Q4_0, T.Q3_K: T.IQ4_NL, T.Q4_K: T.Q5_0, T.Q5_K: T.Q5_1, T.Q6_K: T.Q8_0,
        T.IQ4_XS: T.IQ4_NL,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Plain:
    mix: Mix
    model: ModelShape

    def __call__(self, name: str, shape: tuple[int, ...]) -> T:
        if self.mix.is_plain:
            return self.mix.base
        if _is_output(name, self.model):
            return T.Q6_K
        return T.Q4_K if name == "token_embd.weight" else self.mix.base


class _Experts:
    """MXFP4_MOE: experts in four bits, everything else in eight."""

    def __call__(self, name: str, shape: tuple[int, ...]) -> T:
        return T.MXFP4 if len(shape) > 2 else T.Q8_0


def _is_output(name: str, model: ModelShape) -> bool:
    return name == "output.weight" or (model.tied and name == "token_embd.weight")


def _more_bits(layer: int, layers: int) -> bool:
    """The first and last eighth of the layers, and every third one between them."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


class _Rules:
    """The mixes of llama.cpp, rule for rule.

    Value and down matrices count their own occurrences, because llama.cpp does so instead of
    reading the layer's number; with experts, the number of the layer counts.
    """

    def __init__(self, mix: Mix, model: ModelShape, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._mix, self._model = mix, model
        ordered = [name for name, shape in shapes.items() if is_quantizable(name, shape)]
        self._value = _numbered(n for n in ordered if "attn_v.weight" in n or "attn_qkv" in n)
        self._down = _numbered(n for n in ordered if "ffn_down" in n)
        self._values = max(1, len(self._value))
        layers = model.layers
        self._downs = layers if model.experts > 1 else max(1, len(self._down))

    def __call__(self, name: str, shape: tuple[int, ...]) -> T:
        mix, base, model = self._mix.name, self._mix.base, self._model
        if _is_output(name, model):
            if base is T.Q8_0:
                return T.Q8_0
            return T.Q6_K if shape[-1] % 256 == 0 else T.Q8_0
        if name == "token_embd.weight":
            return base
        if "attn_v.weight" in name:
            return self._attention_value(name, mix, base)
        if "attn_k.weight" in name and model.experts == 8:
            return T.Q8_0
        if "ffn_down" in name:
            return self._ffn_down(name, mix, base)
        if "attn_output.weight" in name:
            return self._attention_output(mix, base)
        if "attn_qkv.weight" in name:
            return _BETTER_QKV.get(mix, base)
        return base

    def _attention_value(self, name: str, mix: str, base: T) -> T:
        number, many = self._value[name], self._values
        kind = base
        if mix == "Q2_K":
            kind = T.Q4_K if self._model.queries_per_key >= 4 else T.Q3_K
        elif mix == "Q2_K_S" and self._model.queries_per_key >= 4:
            kind = T.Q4_K
        elif mix == "Q3_K_M":
            kind = T.Q5_K if number < 2 else T.Q4_K
        elif mix == "Q3_K_L" or (mix in ("IQ4_NL", "IQ4_XS") and self._model.queries_per_key >= 4):
            kind = T.Q5_K
        elif mix in ("Q4_K_M", "Q5_K_M") and _more_bits(number, many):
            kind = T.Q6_K
        elif mix == "Q4_K_S" and number < 4:
            kind = T.Q5_K
        if self._model.is_large_llama and kind in (T.Q3_K, T.Q4_K):
            kind = T.Q5_K
        return T.Q8_0 if self._model.experts == 8 else kind

    def _ffn_down(self, name: str, mix: str, base: T) -> T:
        layer, many = self._layer_of(name), self._downs
        if mix == "Q2_K":
            return T.Q3_K
        if mix == "Q2_K_S":
            return T.Q4_K if layer < many // 8 else base
        if mix == "Q3_K_M":
            if layer < many // 16:
                return T.Q5_K
            return (
                T.Q4_K
                if self._model.architecture != "falcon" or _more_bits(layer, many)
                else T.Q3_K
            )
        if mix == "Q3_K_L":
            return T.Q4_K if self._model.architecture == "falcon" else T.Q5_K
        if mix == "Q4_K_M":
            if self._model.architecture == "falcon":
                if layer < many // 16:
                    return T.Q6_K
                return T.Q5_K if _more_bits(layer, many) else T.Q4_K
            return T.Q6_K if _more_bits(layer, many) else base
        if mix in ("IQ4_NL", "IQ4_XS"):
            return T.Q5_K if layer < many // 8 else base
        if mix == "Q5_K_M":
            return T.Q6_K if _more_bits(layer, many) else base
        if mix == "Q4_K_S" and self._model.architecture != "falcon":
            return T.Q5_K if layer < many // 8 else base
        if mix in ("Q4_0", "Q5_0"):
            return base
        return base

    def _layer_of(self, name: str) -> int:
        if self._model.experts > 1:
            found = re.match(r"blk\.(\d+)\.", name)
            return int(found[1]) if found else 0
        return self._down[name]

    def _attention_output(self, mix: str, base: T) -> T:
        if self._model.architecture == "falcon":
            return T.Q4_K if mix == "Q3_K_L" else base
        if self._model.experts == 8 and mix in _FIVE_BITS_WITH_EXPERTS:
            return T.Q5_K
        return {"Q2_K": T.Q3_K, "Q3_K_M": T.Q4_K, "Q3_K_L": T.Q5_K}.get(mix, base)


_FIVE_BITS_WITH_EXPERTS: Final = frozenset(
    {"Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ4_NL", "IQ4_XS"}
)
_BETTER_QKV: Final = MappingProxyType(
    {"Q3_K_M": T.Q4_K, "Q3_K_L": T.Q4_K, "Q4_K_M": T.Q5_K, "Q5_K_M": T.Q6_K}
)


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}
