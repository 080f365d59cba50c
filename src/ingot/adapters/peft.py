"""Adapters as PEFT saves them: adapter_config.json and adapter_model.safetensors.

A folder and the model come in. The names and orders of rows are those of the
architecture's checkpoint (`ingot.models.checkpoint`), so an adapter fits whatever `ingot convert`
makes of its base model. Adapters of parameters, such as those of experts, are named in
`peft_parameters.py`. What would change the model in another way than LoRA is refused.
"""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from ingot.adapters.adapter import OUTPUT, TABLES, Adapter, FloatMatrix, LowRank
from ingot.adapters.peft_parameters import Pair, name_pairs, setting_of
from ingot.arrays import Floats
from ingot.convert.derived import ReorderedColumns
from ingot.convert.folder import read_json
from ingot.convert.matrices import RowNumbers, as_floats
from ingot.convert.safetensors import StoredTensor, as_array, read_safetensors
from ingot.convert.tensors import FileTensor, plan_tensors
from ingot.errors import AdapterError, ConversionError
from ingot.gguf import GgmlType, GgufLoader, Metadata
from ingot.models import stored_forms
from ingot.models.settings import Settings

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_BASE = (".base_layer.weight", ".base_layer.bias")
_EXPERTS = "_exps.weight"
_TENSOR = re.compile(
    r"(?P<module>.+)\.(?:lora_(?P<linear>[AB])\.weight|lora_embedding_(?P<embedding>[AB]))"
)
# Settings that change a model in another way, with what they must be.
_UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "use_dora": (False,),
    "modules_to_save": ([],),
    "bias": ("none",),
    "lora_bias": (False,),
    "layer_replication": ([],),
    "trainable_token_indices": ([], {}),
    "alora_invocation_tokens": ([],),
}


@dataclass(frozen=True, slots=True)
class _UpMatrix:
    """The up matrix of a pair, as a tensor of a checkpoint: its columns stand for the inputs."""

    pair: Pair

    @property
    def shape(self) -> tuple[int, ...]:
        rows, columns, experts = self.pair.up.rows, self.pair.down.columns, self.pair.experts
        return (experts, rows // experts, columns) if experts else (rows, columns)

    def read(self, rows: RowNumbers) -> Floats:
        return self.pair.up.picked(rows).floats()

    def release(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class _Scales:
    """alpha and rank of each module."""

    path: Path
    alpha: float
    alphas: Mapping[str, float]  # by the end of a module's name, or a pattern
    root: bool  # divided by the root of the rank

    def of(self, pair: Pair) -> float:
        alpha: float = setting_of(pair.key, self.alpha, self.alphas, f"{self.path}: alpha_pattern")
        rank = pair.up.columns
        return alpha / (math.sqrt(rank) if self.root else rank)


def is_peft_folder(path: Path) -> bool:
    """Whether a folder holds an adapter of PEFT."""
    return (path / CONFIG).is_file()


def base_of(path: Path) -> Path:
    """The folder of the base model that an adapter names, if it is on this machine."""
    named = (read_json(path / CONFIG) or {}).get("base_model_name_or_path")
    if not isinstance(named, str) or not Path(named).is_dir():
        raise AdapterError(
            f"{path} is for the model {named!r}, which is not a folder on this machine; "
            "name it with --base"
        )
    return Path(named)


def read_peft_adapter(path: Path, model: GgufLoader) -> Adapter:
    """The adapter of a folder, for a model."""
    config = read_json(path / CONFIG)
    if config is None:
        raise AdapterError(f"{path} has no {CONFIG}; give a folder as PEFT saves it")
    scales = _read_scales(path, config)
    if not (path / WEIGHTS).is_file():
        pickled = (path / "adapter_model.bin").is_file()
        raise AdapterError(
            f"{path} has no {WEIGHTS}"
            + ("; adapter_model.bin may run code: save it as safetensors first" if pickled else "")
        )
    sides = _read_pairs(path, read_safetensors(path / WEIGHTS))
    for module, (down, up) in sides.items():
        if down.rows != up.columns or not down.rows:
            raise AdapterError(
                f"{path}: A of {module} has {down.rows} rows and B {up.columns} columns; both must "
                "be the rank, which is 1 or more"
            )
    architecture = model.metadata.string("general.architecture")
    experts = _number(model.metadata, f"{architecture}.expert_count")
    pairs = name_pairs(path, config, sides, experts)
    placed = _placed(path, architecture, model, pairs)
    tensors = {name: _low_rank(path, name, tensor, scales) for name, tensor in placed.items()}
    return Adapter(str(path), tensors)


def _read_scales(path: Path, config: Mapping[str, Any]) -> _Scales:
    method = config.get("peft_type")
    if method != "LORA":
        raise AdapterError(f"{path} is an adapter of the type {method!r}; only 'LORA' is supported")
    for name, allowed in _UNSUPPORTED.items():
        value = config.get(name)
        if value is not None and value not in allowed:
            raise AdapterError(
                f"{path}: {CONFIG} has {name}={value!r}, which is not supported; merge the adapter "
                "into its base model with PEFT (merge_and_unload) and convert the result"
            )
    alpha, alphas = config.get("lora_alpha"), config.get("alpha_pattern") or {}
    if not _is_number(alpha) or not isinstance(alphas, dict):
        raise AdapterError(f"{path}: {CONFIG} has no valid lora_alpha and alpha_pattern")
    if not all(_is_number(value) for value in alphas.values()):
        raise AdapterError(f"{path}: alpha_pattern of {CONFIG} is not names with numbers")
    return _Scales(path, float(alpha), alphas, bool(config.get("use_rslora", False)))


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _read_pairs(
    path: Path, stored: Mapping[str, StoredTensor]
) -> dict[str, tuple[FloatMatrix, FloatMatrix]]:
    """A and B of each module; of an embedding, A has a row for each rank as well."""
    sides: dict[str, dict[str, FloatMatrix]] = {}
    for name, tensor in stored.items():
        if name.endswith(_BASE):  # PEFT saves targeted embeddings of the base model, too
            continue
        found = _TENSOR.fullmatch(name)
        if found is None:
            raise AdapterError(
                f"{path}: tensor {name} is neither A nor B of a LoRA pair; adapters that store "
                "other tensors (new tokens, norms, DoRA) are not supported"
            )
        if len(tensor.shape) != 2:
            raise AdapterError(f"{path}: {name} has shape {tensor.shape}; only matrices are known")
        side = found["linear"] or found["embedding"]
        module = found["module"].removeprefix(_PREFIX)
        sides.setdefault(module, {})[side] = _matrix(tensor)
    for module, both in sides.items():
        if len(both) < 2:
            raise AdapterError(f"{path}: {module} has only one of A and B; it is incomplete")
    return {module: (both["A"], both["B"]) for module, both in sides.items()}


def _matrix(tensor: StoredTensor) -> FloatMatrix:
    values = as_array(tensor)
    if tensor.type == "BF16":
        return FloatMatrix(GgmlType.BF16, np.array(values))
    if tensor.type == "F16":
        return FloatMatrix(GgmlType.F16, np.array(values))
    return FloatMatrix.of(np.array(as_floats(values, tensor.type)))


def _placed(
    path: Path, architecture: str, model: GgufLoader, pairs: Sequence[Pair]
) -> dict[str, FileTensor]:
    """Where each up matrix belongs, by the names of the model's file.

    Of several forms of a checkpoint, that one is meant whose tensors the model has.
    """
    settings = _settings(architecture, model.metadata)
    stored = {pair.stored: _UpMatrix(pair) for pair in pairs}
    known = stored_forms(architecture)
    if not known:
        raise AdapterError(f"{path}: PEFT adapters of {architecture!r} models cannot be read")
    names = {*model.tensors, OUTPUT}
    first: dict[str, FileTensor] | None = None
    problem: ConversionError | None = None
    for checkpoint in known:
        # No file states the factors. Whatever they are, such a tensor is refused, by its name.
        factors = dict.fromkeys(checkpoint.factors, _unknown_factors)
        try:
            placed = plan_tensors(replace(checkpoint, factors=factors), settings, stored)
        except ConversionError as error:
            problem = problem or error
            continue
        if placed.keys() <= names:
            return placed
        first = first or placed
    if first is None:
        raise AdapterError(f"{path} does not fit a model of {architecture!r}: {problem}")
    return first


def _unknown_factors(rows: int, _: Settings) -> Floats:
    return np.ones(rows, np.float32)


def _settings(architecture: str, metadata: Metadata) -> Settings:
    """What orders of rows depend on, as config.json would state it."""
    heads = _number(metadata, f"{architecture}.attention.head_count")
    kv_heads = _number(metadata, f"{architecture}.attention.head_count_kv") or heads
    return Settings(
        {
            "hidden_size": _number(metadata, f"{architecture}.embedding_length"),
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "num_kv_heads": kv_heads,
            "tie_word_embeddings": False,  # an adapter of the output matrix is one of its own
            "new_decoder_architecture": True,  # the key heads are as stated above
            "linear_num_key_heads": _number(metadata, f"{architecture}.ssm.group_count"),
            "linear_num_value_heads": _number(metadata, f"{architecture}.ssm.time_step_rank"),
            "linear_key_head_dim": _number(metadata, f"{architecture}.ssm.state_size"),
        }
    )


def _number(metadata: Metadata, key: str) -> int:
    """A number, or the largest if there is one for each layer; 0 if there is none."""
    value = metadata.get(key)
    if isinstance(value, np.ndarray) and value.size:
        return int(value.max())
    return value if isinstance(value, int) else 0


def _low_rank(path: Path, name: str, tensor: FileTensor, scales: _Scales) -> LowRank:
    """The pair of a tensor of the file; of several modules, their ranks one after the other."""
    dimensions = 3 if name.endswith(_EXPERTS) else 2
    if tensor.change is not None or len(tensor.shape) != dimensions:
        raise AdapterError(f"{path}: adapters of {name} are not supported")
    found = []
    for piece in tensor.pieces:
        columns = piece.matrix if isinstance(piece.matrix, ReorderedColumns) else None
        matrix = piece.matrix if columns is None else columns.matrix
        if not isinstance(matrix, _UpMatrix):  # values or blocks of the base model are changed
            raise AdapterError(
                f"{path}: adapters of {name} are not supported; merge the adapter into its base "
                "model with PEFT (merge_and_unload) and convert the result"
            )
        pair = matrix.pair
        down, up = pair.down, pair.up
        if name in TABLES:
            down = down.transposed()
        if columns is not None:
            down = down.transposed().picked(columns.order).transposed()
        if piece.order is not None:
            up = up.picked(piece.order)
        found.append(LowRank(down, up, scales.of(pair), pair.experts))
    if dimensions == 3 and not found[0].experts:
        return _of_experts(path, name, found)
    return found[0] if len(found) == 1 else _stacked(found)


def _of_experts(path: Path, name: str, parts: list[LowRank]) -> LowRank:
    """Experts that are modules, each with a pair of its own."""
    kinds = {(low.rank, low.scale, low.down.type, low.up.type) for low in parts}
    if len(kinds) > 1:
        raise AdapterError(
            f"{path}: the experts of {name} have adapters of different ranks, scales or types"
        )
    down, up = (
        FloatMatrix(sides[0].type, np.concatenate([side.values for side in sides]))
        for sides in ([low.down for low in parts], [low.up for low in parts])
    )
    return LowRank(down, up, parts[0].scale, len(parts))


def _stacked(parts: list[LowRank]) -> LowRank:
    """Modules whose rows are one tensor of the file: each has its own ranks."""
    rows, ranks = sum(low.up.rows for low in parts), sum(low.rank for low in parts)
    up = np.zeros((rows, ranks), np.float32)
    row = rank = 0
    for low in parts:
        up[row : row + low.up.rows, rank : rank + low.rank] = low.up.floats() * np.float32(
            low.scale
        )
        row, rank = row + low.up.rows, rank + low.rank
    down = np.concatenate([low.down.floats() for low in parts])
    return LowRank(FloatMatrix.of(down), FloatMatrix.of(up), 1.0)
