"""How fast a model will decode, and which models fit: computed from a calibration.

A step reads every weight once (of experts, those that a token chooses), so its time is

    sum over types and widths of rows: bytes / their rate  +  operations * time of one

The table of sizes is for typical models of a size; a file is predicted from its own tensors. Speeds
are those of the CPU; of a GPU, the table only tells what fits its free memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ingot import _native
from ingot.cli.doctor.calibration import Calibration, Rows
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph.fusion import fuse
from ingot.models import build_graph

_OPERATIONS_PER_LAYER = 7  # after fusion, of most architectures
_CONTEXT = 8192  # of the KV cache in the table of sizes
_RESERVE = 512 << 20  # of memory, for the process and the system
# What a GPU keeps besides the KV cache, as its planner counts it for models of 1.5B to 30B: weights
# grow by a part of their size in the file, and a step's activations and buffers take 0.5 to 1 GB.
_GPU_GROWTH = {"Q4_K_M": 1.1, "Q8_0": 1.0}
_GPU_STEP = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Reads:
    """What a decode step of one sequence does."""

    bytes: Mapping[Rows, float]
    operations: int

    def tokens_per_second(self, calibration: Calibration) -> float | None:
        """The prediction; None if some rows have not been measured."""
        if any(rows.name not in calibration.rates for rows in self.bytes):
            return None
        seconds = sum(count / calibration.rates[rows.name] for rows, count in self.bytes.items())
        return 1 / (seconds + self.operations * calibration.operation_seconds)


def reads_of(file: GgufLoader) -> Reads:
    """What a step of a model reads."""
    found: dict[Rows, float] = {}
    for name, tensor in file.tensors.items():
        whole_table = name == "token_embd.weight" and "output.weight" in file.tensors
        if len(tensor.shape) > 1 and not whole_table and _native.has_linear(tensor.type):
            rows = Rows.of(tensor.type, tensor.shape[-1])
            found[rows] = found.get(rows, 0) + tensor.nbytes * _share_used(file, name)
    return Reads(found, len(fuse(build_graph(file, None)).ops))


def _share_used(file: GgufLoader, name: str) -> float:
    """The share of a tensor that one token uses: of experts, those it chooses."""
    arch = file.metadata.get("general.architecture")
    used = file.metadata.get(f"{arch}.expert_used_count")
    count = file.metadata.get(f"{arch}.expert_count")
    if "_exps." not in name or type(used) is not int or type(count) is not int or not count:
        return 1.0
    return used / count


@dataclass(frozen=True, slots=True)
class Size:
    """A typical model of a size."""

    name: str
    weights: float  # billions
    active: float  # billions that a token uses
    layers: int
    kv_width: int  # values of a key and a value of one layer and token

    @property
    def cache_bytes(self) -> int:
        """The KV cache of the table, as f16."""
        return 2 * _CONTEXT * self.layers * self.kv_width


SIZES = (
    Size("0.5B", 0.49, 0.49, 24, 256),
    Size("1.5B", 1.54, 1.54, 28, 512),
    Size("3B", 3.1, 3.1, 36, 512),
    Size("8B", 8.0, 8.0, 32, 2048),
    Size("14B", 14.8, 14.8, 40, 2048),
    Size("30B, 3B active", 30.5, 3.3, 48, 1024),
    Size("32B", 32.8, 32.8, 64, 2048),
    Size("70B", 70.6, 70.6, 80, 2048),
)
# Of the weights of a mix, the share of each type.
MIXES: Mapping[str, Mapping[GgmlType, float]] = {
    "Q4_K_M": {GgmlType.Q4_K: 0.8, GgmlType.Q6_K: 0.2},
    "Q8_0": {GgmlType.Q8_0: 1.0},
}
MIX_ROWS = tuple(Rows.wide(kind) for mix in MIXES.values() for kind in mix)


@dataclass(frozen=True, slots=True)
class Fit:
    """A size in one mix on this machine; bytes and what fits with a KV cache of 8,192 tokens."""

    size: str
    mix: str
    bytes: int
    fits: bool
    fits_gpu: bool | None  # whole; None: there is no GPU
    tokens_per_second: float | None  # on the CPU


def gpu_bytes(model: Size, mix: str, weights: float) -> float:
    """Memory that a model takes on a GPU; `weights` are the bytes of the weights in the file."""
    return weights * _GPU_GROWTH[mix] + model.cache_bytes + _GPU_STEP


def fits(calibration: Calibration, memory: int, gpu_memory: int | None = None) -> list[Fit]:
    """All sizes in all mixes, in this memory and in that of a GPU."""
    found = []
    for model in SIZES:
        for mix, shares in MIXES.items():
            per_weight = {
                Rows.wide(kind): share * kind.block_bytes / kind.block_size
                for kind, share in shares.items()
            }
            weights = model.weights * 1e9 * sum(per_weight.values())
            needed = round(weights) + model.cache_bytes
            step = {rows: count * model.active * 1e9 for rows, count in per_weight.items()}
            reads = Reads(step, model.layers * _OPERATIONS_PER_LAYER)
            on_gpu = None if gpu_memory is None else gpu_bytes(model, mix, weights) <= gpu_memory
            found.append(
                Fit(
                    size=model.name,
                    mix=mix,
                    bytes=needed,
                    fits=needed + _RESERVE <= memory,
                    fits_gpu=on_gpu,
                    tokens_per_second=reads.tokens_per_second(calibration),
                )
            )
    return found
