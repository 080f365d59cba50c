"""EngineOptions: how an engine is set up, checked before a file is opened."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, Self, TypedDict, get_args

from ingot.engine.model.placement import GpuLayers, check_shares
from ingot.errors import ConfigError, UnknownParameterError

MAX_RUNNING = 1024  # sequences in one decode step of a GPU; the CPU takes fewer
Speculation = Literal["off", "auto", "ngram", "mtp"]
RequestSpeculation = Literal["off", "auto"]  # of one request; "auto": as the engine was opened


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Settings of an engine; None leaves the choice to the engine."""

    threads: int | None = None  # INGOT_THREADS, or the physical cores it may use
    context: int | None = None  # tokens of a sequence: what the model allows, at most 8192
    kv_type: str = "f16"  # how keys and values are stored: f32, f16, bf16, q8_0, q4_0 or fp8
    # "map" uses them in the file, "lock" also keeps them in memory, "read" copies them as they are,
    # "repack" as the CPU reads them fastest; "auto" repacks them if there is memory to spare.
    weights: str = "auto"
    # How far the CPU rounds the inputs of matrix products: "fast" (8 bits for formats where this is
    # faster) or "exact" (16 bits). INGOT_PRECISION, or "fast"
    precision: str | None = None
    # On machines with several NUMA nodes: "split" keeps threads, and the rows of repacked weights
    # that they multiply, to nodes; "replicate" gives every node all repacked weights; "auto" splits
    # if there are more threads than a node has cores; or "off"
    numa: str = "auto"
    pin_threads: bool = False  # keep each thread to a core of its own (Linux)
    cache_tokens: int | None = None  # of all sequences together: four contexts, if memory allows
    reuse: str = "all"  # what a prompt may find in the cache: "all", "prompt" or "none"
    # Requests that run at once: at most 64, or 1024 on a GPU. None: 32, or on a GPU as many as have
    # 1024 tokens each in a quarter of its free memory, up to 256
    max_running: int | None = None
    max_queue: int = 1024  # requests that wait
    # Of prompts, read between two tokens of the running texts: 128; on a GPU 256, 512 or 1024, as
    # many as take as long as two decode steps
    chunk_tokens: int | None = None
    # Guesses of the next tokens. "ngram": from the text itself. "mtp": by layers that the model has
    # for multi-token prediction. "auto": only if they pay, by what steps cost and how often guesses
    # are right; of a draft model, of such layers or n-grams. None: as "off"
    speculation: Speculation | None = None
    # "cuda": a GPU of NVIDIA or AMD (ingot-llm[gpu]), "cuda:1": one of several; "auto": if there is
    # one
    device: str = "cpu"
    # The first layers, which run on the GPU: a number, or "auto" for as many as fit. None: all, or
    # as many as fit where the device is "auto"
    gpu_layers: GpuLayers = None
    # The shares of several GPUs in these layers, (1, 1) for half of them each. None: one GPU
    gpu_split: Sequence[float] | None = None
    # A smaller model that guesses tokens, or a draft that reads the model's hidden states (EAGLE-3)
    draft: str | os.PathLike[str] | None = None
    adapters: Mapping[str, str | os.PathLike[str]] | None = None  # LoRA adapters by name
    # Scales of adapters that requests use if they choose none; those left out are not used
    adapter_scales: Mapping[str, float] | None = None
    # Seconds after which a step counts as hanging. None: never
    step_timeout: float | None = 600.0
    # Whether the engine runs in another process, which shares no interpreter lock with this one.
    # None: no; in `ingot serve` if the model is on a GPU and has at least 1 GiB of weights
    engine_process: bool | None = None

    @classmethod
    def from_names(cls, names: "EngineFields") -> Self:
        """Options by name; an unknown name is an error that suggests the nearest one."""
        known = {entry.name for entry in fields(cls)}
        for name in names:
            if name not in known:
                raise UnknownParameterError(name, known)
        return cls(**names)

    def __post_init__(self) -> None:
        if self.max_running is not None:
            _check("max_running", self.max_running, 1, MAX_RUNNING)
        _check("max_queue", self.max_queue, 1, 1 << 20)
        if self.chunk_tokens is not None:
            _check("chunk_tokens", self.chunk_tokens, 1, 4096)
        if self.cache_tokens is not None:
            _check("cache_tokens", self.cache_tokens, 1, 1 << 40)
        if self.speculation is not None and self.speculation not in get_args(Speculation):
            known = ", ".join(map(repr, get_args(Speculation)))
            raise ConfigError(f"speculation is {self.speculation!r}; it must be {known} or None")
        if self.draft and self.speculation not in (None, "off", "auto"):
            raise ConfigError(
                f"speculation {self.speculation!r} and draft exclude each other: choose one, or "
                "speculation 'auto' for a draft model that guesses if it pays"
            )
        if self.gpu_split is not None:
            check_shares(self.gpu_split)
        if self.step_timeout is not None and not self.step_timeout > 0:
            raise ConfigError(
                f"step_timeout is {self.step_timeout!r}; it must be a number of seconds above 0, "
                "or None"
            )

    @property
    def mtp(self) -> bool | None:
        """Whether the model's own layers guess tokens; None: if it has some."""
        return None if self.speculation == "auto" and not self.draft else self.speculation == "mtp"

    @property
    def guesses(self) -> bool:
        """Whether tokens are guessed, if only at times."""
        return self.speculation not in (None, "off") or self.draft is not None


class EngineFields(TypedDict, total=False):
    """The fields of `EngineOptions` as keyword arguments, for editors and type checkers."""

    threads: int | None
    context: int | None
    kv_type: str
    weights: str
    precision: str | None
    numa: str
    pin_threads: bool
    cache_tokens: int | None
    reuse: str
    max_running: int | None
    max_queue: int
    chunk_tokens: int | None
    speculation: Speculation | None
    device: str
    gpu_layers: GpuLayers
    gpu_split: Sequence[float] | None
    draft: str | os.PathLike[str] | None
    adapters: Mapping[str, str | os.PathLike[str]] | None
    adapter_scales: Mapping[str, float] | None
    step_timeout: float | None
    engine_process: bool | None


def _check(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{name} is {value!r}; it must be a number from {least} to {most}")
