"""Which type each tensor of a model gets: llama.cpp's mixes (Q4_K_M and the like).

In: the name of a mix, and the names and shapes of all tensors. Out: a type for each tensor. The
rules are those of llama.cpp's quantizer, so that a mix has the same size here and there. This
module reads no weights.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
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
    def needs_imatrix(self) -> bool:
        """Whether most tensors of it need an importance matrix, or some do."""
        return self.base in _BELOW_THREE_BITS or self.name in ("Q2_K_S", "IQ3_XS")

    def tensor_needs_imatrix(self, name: str, kind: T) -> bool:
        """Whether llama.cpp writes a tensor as this type only with an importance matrix."""
        if name in ("token_embd.weight", "output.weight"):
            return False
        return kind in _BELOW_THREE_BITS or (self.name == "Q2_K_S" and kind is T.Q2_K)


def _mixes() -> dict[str, Mix]:
    rows = (
        ("F32", T.F32, 0), ("F16", T.F16, 1), ("BF16", T.BF16, 32),
        ("Q8_0", T.Q8_0, 7), ("Q4_0", T.Q4_0, 2), ("Q4_1", T.Q4_1, 3),
        ("Q5_0", T.Q5_0, 8), ("Q5_1", T.Q5_1, 9),
        ("Q2_K", T.Q2_K, 10), ("Q2_K_S", T.Q2_K, 21),
        ("Q3_K_S", T.Q3_K, 11), ("Q3_K_M", T.Q3_K, 12), ("Q3_K_L", T.Q3_K, 13),
        ("Q4_K_S", T.Q4_K, 14), ("Q4_K_M", T.Q4_K, 15),
        ("Q5_K_S", T.Q5_K, 16), ("Q5_K_M", T.Q5_K, 17), ("Q6_K", T.Q6_K, 18),
        ("IQ1_S", T.IQ1_S, 24), ("IQ1_M", T.IQ1_M, 31),
        ("IQ2_XXS", T.IQ2_XXS, 19), ("IQ2_XS", T.IQ2_XS, 20),
        ("IQ2_S", T.IQ2_XS, 28), ("IQ2_M", T.IQ2_S, 29),
        ("IQ3_XXS", T.IQ3_XXS, 23), ("IQ3_XS", T.IQ3_S, 22),
        ("IQ3_S", T.IQ3_S, 26), ("IQ3_M", T.IQ3_S, 27),
        ("IQ4_NL", T.IQ4_NL, 25), ("IQ4_XS", T.IQ4_XS, 30),
        ("TQ1_0", T.TQ1_0, 36), ("TQ2_0", T.TQ2_0, 37), ("MXFP4_MOE", T.MXFP4, 38),
        ("Q1_0", T.Q1_0, 40), ("Q2_0", T.Q2_0, 41),
    )  # fmt: skip
    return {name: Mix(name, base, number) for name, base, number in rows}


MIXES: Final[Mapping[str, Mix]] = MappingProxyType(_mixes())
COPY: Final = Mix("COPY", T.F32, 0)  # each tensor keeps its type, and the file its number
_BELOW_THREE_BITS: Final = frozenset({T.IQ3_XXS, T.IQ2_S, T.IQ2_XS, T.IQ2_XXS, T.IQ1_M, T.IQ1_S})
_SHORT_NAMES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "MXFP4": "MXFP4_MOE"}

# What stays as it is, because it is small or sensitive.
_KEPT = re.compile(
    r".*_norm\.weight|.*ffn_gate_inp\.weight|.*ffn_gate_inp_shexp\.weight|.*ssm_conv1d\.weight"
    r"|.*attn_rel_b\.weight|.*shortconv\.conv\.weight|.*altup_(correct|predict)_coef\.weight"
    r"|.*indexer\.proj\.weight"
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

    layers: int
    experts: int = 0
    queries_per_key: int = 1
    tied: bool = False  # no `output.weight`
    own_rules: bool = False  # those that llama.cpp has for an architecture alone

    @property
    def has_small_values(self) -> bool:
        """80 layers with fewer key heads than queries, as Llama 2 70B and Qwen 2 72B have them."""
        return self.layers == 80 and self.queries_per_key > 1


def choose_types(
    mix: Mix,
    model: ModelShape,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    has_imatrix: bool = False,
) -> dict[str, T]:
    """The type of each tensor that a mix applies to."""
    if mix is COPY:
        return {}
    matrices = {name: shape for name, shape in shapes.items() if is_quantizable(name, shape)}
    rules = _Rules(mix, model, list(matrices), has_imatrix=has_imatrix)
    return {
        name: fitting(rules.type_of(name, shape), shape[-1]) for name, shape in matrices.items()
    }


def fitting(kind: T, columns: int) -> T:
    """The type, or the next one whose blocks divide the rows."""
    if columns % kind.block_size == 0:
        return kind
    instead = _INSTEAD.get(kind, T.F16)
    return instead if columns % instead.block_size == 0 else T.F16


_INSTEAD: Final = MappingProxyType(
    {
        T.TQ1_0: T.Q4_0, T.TQ2_0: T.Q4_0, T.Q2_K: T.Q4_0, T.Q3_K: T.Q4_0,
        T.Q1_0: T.Q4_0, T.Q2_0: T.Q4_0,
        T.Q4_K: T.Q5_0, T.Q5_K: T.Q5_1, T.Q6_K: T.Q8_0, T.IQ4_XS: T.IQ4_NL,
        T.IQ1_S: T.IQ4_NL, T.IQ1_M: T.IQ4_NL, T.IQ2_XXS: T.IQ4_NL, T.IQ2_XS: T.IQ4_NL,
        T.IQ2_S: T.IQ4_NL, T.IQ3_XXS: T.IQ4_NL, T.IQ3_S: T.IQ4_NL,
    }
)  # fmt: skip


def _more_bits(number: int, count: int) -> bool:
    """The first and last eighth, and every third one between them."""
    return number < count // 8 or number >= 7 * count // 8 or (number - count // 8) % 3 == 2


class _Rules:
    """The rules of llama.cpp for one model.

    Value matrices (or fused ones that hold them) and down matrices are numbered by occurrence, as
    llama.cpp does. Down matrices of experts are numbered by layer.
    """

    def __init__(
        self, mix: Mix, model: ModelShape, names: Sequence[str], *, has_imatrix: bool
    ) -> None:
        self._mix, self._base, self._model = mix.name, mix.base, model
        self._has_imatrix = has_imatrix
        self._values = _numbered(name for name in names if _VALUE.search(name))
        self._downs = _numbered(name for name in names if "ffn_down" in name)
        self._ups = _numbered(name for name in names if "ffn_up" in name)
        self._gates = _numbered(name for name in names if "ffn_gate" in name)

    def type_of(self, name: str, shape: tuple[int, ...]) -> T:
        """The type before it is known whether its blocks divide the rows."""
        if self._base in (T.F32, T.F16, T.BF16):
            return self._base
        if self._base is T.MXFP4:  # experts in four bits, everything else in eight
            return T.MXFP4 if len(shape) > 2 else T.Q8_0
        if name == "output.weight" or (self._model.tied and name == "token_embd.weight"):
            large = self._model.own_rules or shape[-1] % T.Q6_K.block_size or self._base is T.Q8_0
            smaller = self._mix in _TWO_BITS or self._mix == "IQ3_XXS"
            return T.Q8_0 if large else T.Q5_K if smaller else T.Q6_K
        if name == "token_embd.weight":
            return _EMBEDDINGS.get(self._mix, self._base)
        if self._mix in _TWO_BITS:
            return self._two_bits(name, _TWO_BITS[self._mix])
        if name in self._values:
            return self._value(self._values[name], len(self._values))
        if "attn_k.weight" in name and self._model.experts == 8:
            return T.Q8_0
        if _QUERY_OR_KEY.search(name):
            return _QUERIES_AND_KEYS.get(self._mix, self._base)
        if name in self._downs:
            return self._down(name)
        if "attn_output.weight" in name:
            return self._attention_output()
        for numbers in (self._ups, self._gates):
            if self._mix == "IQ3_XS" and name in numbers:
                number, count = self._layer(name, numbers)
                return T.IQ3_XXS if count // 8 <= number < 7 * count // 8 else self._base
        return self._base

    def _layer(self, name: str, numbers: Mapping[str, int]) -> tuple[int, int]:
        """The number of a feed-forward matrix, and how many there are."""
        if self._model.experts > 1 and (found := re.match(r"blk\.(\d+)\.", name)):
            return int(found[1]), self._model.layers
        return numbers[name], len(numbers)

    def _two_bits(self, name: str, better: T) -> T:
        """Mixes of IQ1 and IQ2: what matters most gets `better`, or more."""
        model = self._model
        if name in self._values:
            return T.Q4_K if model.queries_per_key >= 4 or model.experts >= 4 else better
        if "attn_k.weight" in name and model.experts == 8:
            return T.Q4_K
        if name in self._downs:
            return better if self._downs[name] < len(self._downs) // 8 else self._base
        if "attn_output.weight" in name:
            if model.experts == 8:
                return T.Q5_K
            if self._base in (T.IQ1_S, T.IQ1_M):
                return T.IQ2_XXS
            return better if better is T.IQ3_S else self._base
        return self._base

    def _value(self, number: int, count: int) -> T:
        if self._model.experts == 8:
            return T.Q8_0
        grouped = self._model.queries_per_key >= 4
        match self._mix:
            case "Q2_K":
                kind = T.Q4_K if grouped else T.Q3_K
            case "Q2_K_S" if grouped:
                kind = T.Q4_K
            case "IQ3_XXS" | "IQ3_XS" | "IQ3_S" if grouped:
                kind = T.Q4_K
            case "IQ3_M":
                kind = T.Q4_K
            case "Q3_K_M":
                kind = T.Q5_K if number < 2 else T.Q4_K
            case "Q3_K_L":
                kind = T.Q5_K
            case "IQ4_NL" | "IQ4_XS" if grouped:
                kind = T.Q5_K
            case "Q4_K_M" | "Q5_K_M" if _more_bits(number, count):
                kind = T.Q6_K
            case "Q4_K_S" if number < 4:
                kind = T.Q5_K
            case _:
                kind = self._base
        return T.Q5_K if self._model.has_small_values and kind in (T.Q3_K, T.Q4_K) else kind

    def _down(self, name: str) -> T:
        number, count = self._layer(name, self._downs)
        more = _more_bits(number, count)
        match self._mix:
            case "Q2_K":
                return T.Q3_K
            case "Q2_K_S" if number < count // 8:
                return T.Q4_K
            case "Q4_0" | "Q5_0" if self._has_imatrix and number < count // 8:
                return T.Q4_1 if self._base is T.Q4_0 else T.Q5_1
            case "Q3_K_M" if number < count // 16:
                return T.Q5_K
            case "Q3_K_M":
                return T.Q4_K if more or not self._model.own_rules else T.Q3_K
            case "IQ3_M" if number < count // 8 or (more and self._model.experts == 8):
                return T.Q4_K
            case "Q3_K_L":
                return T.Q4_K if self._model.own_rules else T.Q5_K
            case "Q4_K_M" if self._model.own_rules and number >= count // 16:
                return T.Q5_K if more else T.Q4_K
            case "Q4_K_M" | "Q5_K_M" if more:
                return T.Q6_K
            case "IQ4_NL" | "IQ4_XS" if number < count // 8 and not self._has_imatrix:
                return T.Q5_K
            case "Q4_K_S" if number < count // 8 and not self._model.own_rules:
                return T.Q5_K
        return self._base

    def _attention_output(self) -> T:
        if self._model.own_rules:
            return T.Q4_K if self._mix == "Q3_K_L" else self._base
        if self._model.experts == 8:
            return T.Q5_K if self._mix in _FIVE_BITS_WITH_EXPERTS else self._base
        return _OUTPUTS_OF_ATTENTION.get(self._mix, self._base)


_VALUE = re.compile(r"attn_(v|qkv|kv_b)\.weight")
_QUERY_OR_KEY = re.compile(r"attn_[qk]\.weight")
# Mixes of IQ1 and IQ2, and the type of what matters more.
_TWO_BITS: Final = MappingProxyType(
    {
        "IQ1_S": T.Q2_K, "IQ1_M": T.Q2_K, "IQ2_XXS": T.Q2_K, "IQ2_XS": T.Q2_K,
        "IQ2_S": T.IQ3_S, "IQ2_M": T.IQ3_S,
    }
)  # fmt: skip
_EMBEDDINGS: Final = MappingProxyType(
    {**_TWO_BITS, "IQ3_XXS": T.IQ3_S, "TQ1_0": T.Q4_K, "TQ2_0": T.Q4_K, "Q2_0": T.Q4_K}
)
_QUERIES_AND_KEYS: Final = MappingProxyType({"IQ3_XS": T.IQ3_XXS, "IQ3_XXS": T.IQ2_S})
_OUTPUTS_OF_ATTENTION: Final = MappingProxyType(
    {"Q2_K": T.Q3_K, "Q3_K_M": T.Q4_K, "Q3_K_L": T.Q5_K, "IQ3_XXS": T.IQ3_S, "IQ3_M": T.Q4_K}
)
_FIVE_BITS_WITH_EXPERTS: Final = frozenset(
    {
        "Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ4_NL", "IQ4_XS",
        "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M",
    }
)  # fmt: skip


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}
