"""What the `gguf` package says about files of an architecture: its tensors, keys and their types.

llama.cpp's converter writes with this package: it takes the names of tensors from these tables, and
the names and types of keys from this writer. Which tensors are F32 in a file of another type is
said by the converter alone (`prepare_tensors`), and repeated here.
"""

import inspect
import re
from contextlib import suppress
from functools import cache
from types import SimpleNamespace

import gguf

from models.gguf_names import ARCHITECTURES, NEWER_KEYS

_KIND = gguf.MODEL_TENSOR
_SUFFIXES = (".weight", ".bias", ".scale", "")
# A reranker that is a decoder has this beside the tensors of its architecture.
_OF_RANKERS = {_KIND.CLS_OUT}
_F32 = {
    _KIND.FFN_GATE_INP, _KIND.FFN_GATE_INP_SHEXP, _KIND.POS_EMBD, _KIND.TOKEN_TYPES,
    _KIND.SSM_CONV1D, _KIND.SHORTCONV_CONV, _KIND.ALTUP_CORRECT_COEF, _KIND.ALTUP_PREDICT_COEF,
    _KIND.INDEXER_PROJ,
}  # fmt: skip
# Small ones that Ingot keeps exact, which the converter does not.
_F32_HERE = {_KIND.CLS, _KIND.CLS_OUT, _KIND.ENC_ATTN_REL_B, _KIND.DEC_ATTN_REL_B}
_VALUES = (1, "x", [1], SimpleNamespace(value=1))


def tensor_kind(architecture: str, name: str) -> gguf.MODEL_TENSOR | None:
    """Which tensor of an architecture has a name; None if it has no such tensor."""
    general = re.sub(r"\.\d+\.", ".{bid}.", name, count=1)
    suffix = next(each for each in _SUFFIXES if general.endswith(each))
    names = {gguf.TENSOR_NAMES[kind]: kind for kind in _OF_RANKERS}
    names |= {
        gguf.TENSOR_NAMES[kind]: kind for kind in gguf.MODEL_TENSORS[ARCHITECTURES[architecture]]
    }
    return names.get(general.removesuffix(suffix))


def is_f32(architecture: str, name: str, dimensions: int) -> bool:
    """Whether a tensor is F32 in a file of F16."""
    always = dimensions < 2 or name.endswith("_norm.weight") or not name.endswith(".weight")
    return always or tensor_kind(architecture, name) in _F32 | _F32_HERE


@cache
def key_types(architecture: str) -> dict[str, set[gguf.GGUFValueType]]:
    """The keys that the package's writer writes, and the types that their values may have.

    Those of a method depend on its argument if a key may be a list.
    """
    found: dict[str, set[gguf.GGUFValueType]] = {}
    for name, method in inspect.getmembers(gguf.GGUFWriter, inspect.isfunction):
        if name.startswith("add_") and len(inspect.signature(method).parameters) == 2:
            for value in _VALUES:
                writer = gguf.GGUFWriter(None, architecture)
                with suppress(AttributeError, TypeError):  # a value of another kind is wanted
                    getattr(writer, name)(value)
                for key, written in writer.kv_data[0].items():
                    found.setdefault(key, set()).add(written.type)
    newer = {key.format(arch=architecture): {kind} for key, kind in NEWER_KEYS.items()}
    return newer | found
