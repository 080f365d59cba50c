"""Which tensor of a checkpoint each pair of an adapter of PEFT belongs to.

A pair is that of a module (`target_modules`), or of a parameter of one (`target_parameters`), such
as the matrices of all experts. Pairs of parameters are stored under their module: the last one of
its parameters has the module's name, and the one before it has the name of the module inside:

    mlp.experts.lora_A              down_proj
    mlp.experts.base_layer.lora_A   gate_up_proj

If a parameter has matrices of E experts, A is [E * rank, inputs] and B is [outputs, rank * E], with
the experts of a rank beside each other.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingot.adapters.adapter import FloatMatrix
from ingot.errors import AdapterError

_INSIDE = ".base_layer"


@dataclass(frozen=True, slots=True)
class Pair:
    """A and B, as `LowRank` has them, and what they belong to."""

    key: str  # the name that patterns of the configuration match
    stored: str  # the tensor of the checkpoint
    down: FloatMatrix
    up: FloatMatrix
    experts: int = 0


def name_pairs(
    path: Path,
    config: Mapping[str, Any],
    sides: Mapping[str, tuple[FloatMatrix, FloatMatrix]],
    experts: int,
) -> list[Pair]:
    """The pairs of an adapter, whose A and B are given by module, for a model with experts."""
    targets = config.get("target_parameters") or []
    if not isinstance(targets, list) or not all(isinstance(name, str) for name in targets):
        raise AdapterError(f"{path}: target_parameters={targets!r} is not a list of names")
    wrapped: dict[str, list[str]] = {}
    for name in sides:
        wrapped.setdefault(name.replace(_INSIDE, ""), []).append(name)
    found = []
    for module, names in wrapped.items():
        parameters = _targeted(module, targets)
        if len(names) != max(1, len(parameters)):
            raise AdapterError(
                f"{path}: {module} has {len(names)} pairs, and target_parameters names "
                f"{len(parameters)} of its parameters"
            )
        if not parameters:
            found.append(Pair(module, f"{module}.weight", *sides[names[0]]))
        for parameter, name in zip(parameters, sorted(names, key=len, reverse=True), strict=False):
            key = f"{module}.{parameter}"
            ranks = config.get("rank_pattern") or {}
            if not isinstance(ranks, dict):
                raise AdapterError(f"{path}: rank_pattern is not names with numbers")
            rank = setting_of(key, config.get("r"), ranks, f"{path}: rank_pattern")
            found.append(_parameter_pair(path, key, *sides[name], rank, experts))
    return found


def _targeted(module: str, targets: Sequence[str]) -> list[str]:
    """The parameters of a module that are targets, in the order in which it declares them."""
    names = {target.rpartition(".")[2] for target in targets}
    own = [
        name
        for name in sorted(names)
        if any(f".{module}.{name}".endswith(f".{target}") for target in targets)
    ]
    return sorted(own, key=lambda name: name.startswith("down"))  # `transformers` declares it last


def _parameter_pair(
    path: Path, key: str, down: FloatMatrix, up: FloatMatrix, rank: object, experts: int
) -> Pair:
    if down.rows == rank:
        return Pair(key, key, down, up)
    if not isinstance(rank, int) or down.rows != rank * experts:
        raise AdapterError(
            f"{path}: A of {key} has {down.rows} rows; {rank} of each of the model's {experts} "
            "experts are expected"
        )
    by_expert = up.values.reshape(up.rows, rank, experts).transpose(2, 0, 1)
    turned = np.ascontiguousarray(by_expert).reshape(-1, rank)
    return Pair(key, key, down, FloatMatrix(up.type, turned), experts)


def setting_of(key: str, default: Any, patterns: Mapping[str, Any], place: str) -> Any:
    """The setting of the first pattern that is the end of a name, as PEFT reads patterns."""
    for pattern, own in patterns.items():
        try:
            if re.match(rf"(.*\.)?({pattern})$", key):
                return own
        except re.error as error:
            raise AdapterError(f"{place} {pattern!r}: {error}") from None
    return default
