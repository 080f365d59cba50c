"""Scale: how many replicas there are, and what each of them has of its machine.

The options of an engine come in, those for what Ray reserves go out: as many threads as cores, and
the GPU if there is one. It does not know Ray.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ingot.engine import EngineOptions
from ingot.errors import ConfigError
from ingot.server.options import ServedModel, ServerOptions

# Fields of `Scale` about the load of a server.
FOR_SERVERS = ("target_requests", "target_tokens", "upscale_delay", "downscale_delay", "fronts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many replicas there are, and what each of them has of its machine."""

    replicas: int = 1  # at the start, and at least
    max_replicas: int | None = None  # that a load may bring; None: as many as at the start
    target_requests: float | None = None  # of one replica; None: as many as it has slots
    target_tokens: float | None = None  # that these hold; None: they do not count
    upscale_delay: float = 30.0  # seconds that a load must last to bring a replica
    downscale_delay: float = 600.0  # seconds without it that end one
    cpus: float = 1.0  # that Ray reserves for one replica
    gpus: float = 0  # whole ones: 0 or 1
    pin: bool = False  # keep the threads of each replica to cores of its own
    fronts: int = 1  # processes between Serve's proxies and the replicas

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.fronts < 1:
            raise ConfigError("a server on Ray needs at least one replica and one front")
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise ConfigError(
                f"max_replicas is {self.max_replicas}, and replicas is {self.replicas}: it must "
                "not be less"
            )
        if self.pin and (self.cpus < 1 or self.cpus != int(self.cpus)):
            raise ConfigError(f"cpus is {self.cpus}: replicas are pinned to whole cores")
        if self.gpus not in (0, 1):
            raise ConfigError(
                f"a replica cannot have {self.gpus:g} GPUs: an engine plans the memory of one "
                "whole device, so it needs 1, or 0 to run on the CPU"
            )

    @property
    def pinned(self) -> int | None:
        """How many cores of its own a replica keeps to; None: the system chooses."""
        return int(self.cpus) if self.pin else None

    def refuse(self, names: Sequence[str], reason: str) -> None:
        """Raise an error if one of these fields is set, because a batch does not use it."""
        defaults = {field.name: field.default for field in fields(self)}
        for name in names:
            if getattr(self, name) != defaults[name]:
                raise ConfigError(
                    f"{name} is for servers and does not apply to a batch: {reason}; leave it out"
                )


def engine_of(names: Mapping[str, Any], scale: Scale) -> EngineOptions:
    """The options of an engine by name; an error if they refuse the GPU that Ray reserves."""
    engine = EngineOptions.from_names(dict(names))  # type: ignore[arg-type]  # checks the names
    check_device(names.get("device"), scale)
    return engine


def check_device(given: str | None, scale: Scale) -> None:
    """Raise an error if a device, None if none is given, contradicts what Ray reserves."""
    if given == "cpu" and scale.gpus:
        raise ConfigError(
            "device is 'cpu', and Ray is to reserve a GPU for each replica, which would be idle: "
            "leave the device out, or reserve no GPUs"
        )
    if given is not None and given.startswith("cuda") and not scale.gpus:
        raise ConfigError(
            f"device is {given!r}, and Ray reserves no GPU for a replica, so it would see none: "
            "set gpus to 1 (--replica-gpus 1)"
        )


def fitted(options: ServerOptions, scale: Scale) -> ServerOptions:
    """Options for what Ray reserves.

    A model has as many threads as there are cores, unless it is told otherwise. With a GPU, all
    models run on it, unless some are told to and others are not. Without one, "auto" is the CPU.
    """
    told = any(model.engine.device != EngineOptions().device for model in options.models)

    def fit(model: ServedModel) -> ServedModel:
        engine = model.engine
        device = engine.device
        if scale.gpus and not told:
            device = "cuda"
        elif not scale.gpus:
            check_device(device, scale)
            device = "cpu"
        threads = engine.threads or max(1, int(scale.cpus))
        return replace(model, engine=replace(engine, threads=threads, device=device))

    look = options.discover
    return replace(
        options,
        models=tuple(map(fit, options.models)),
        discover=None if look is None else lambda: [*map(fit, look())],
    )
