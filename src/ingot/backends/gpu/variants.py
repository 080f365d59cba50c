"""Variants of kernels: start a kernel, or only note which variant a launch needs.

A variant is what Triton compiles: a kernel for some constants, types, and integers that are 1 or
multiples of 16. A launch comes in; `Kernels` runs it and counts the variants that were not ready,
`Variants` collects them instead, so that they can be compiled ahead (`compile_ahead.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Protocol

import numpy as np
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime import driver
from triton.runtime.cache import get_cache_key, get_cache_manager
from triton.runtime.jit import compute_cache_key, get_cache_invalidating_env_vars

from ingot.backends.gpu import kernels
from ingot.backends.gpu.device import Device

Grid = tuple[int, ...]


class Start(Protocol):
    """Takes the launches of a step."""

    def __call__(self, kernel: Any, grid: Grid, **arguments: Any) -> None:
        """Launch a kernel, or take note of it."""


class Kernels:
    """Launches kernels; `compilations` counts the variants that a launch had to wait for."""

    def __init__(self, device: Device) -> None:
        self._index = device.torch.index
        self._interpreted = device.interpreted
        self.compilations = 0

    def __call__(self, kernel: Any, grid: Grid, **arguments: Any) -> None:
        """Launch a kernel."""
        if self._interpreted:  # nothing is compiled, and rows that fill a batch up hold anything
            with np.errstate(invalid="ignore", over="ignore"):
                kernel[grid](**arguments)
            return
        ready = kernel.device_caches[self._index][0]
        before = len(ready)
        kernel[grid](**arguments)
        self.compilations += len(ready) - before


@dataclass(frozen=True, slots=True)
class Variant:
    """What a compiler needs, in a form that another process can read."""

    module: str
    kernel: str
    signature: Mapping[str, Any]
    constants: Mapping[tuple[int, ...], Any]
    attributes: Mapping[tuple[int, ...], Any]
    options: Mapping[str, Any]
    target: GPUTarget

    def source(self, kernel: Any) -> ASTSource:
        """As Triton compiles it."""
        return ASTSource(kernel, self.signature, self.constants, self.attributes)


class Variants:
    """The variants of some launches that are not ready in this process."""

    def __init__(self) -> None:
        hash_kernels()
        self.missing: list[Variant] = []  # those that are not on the disk either
        self._known: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        """How many are not ready in this process."""
        return len(self._known)

    def __call__(self, kernel: Any, grid: Grid, **arguments: Any) -> None:  # noqa: ARG002
        """Take note of a launch. This follows `JITFunction.run` up to where it compiles."""
        arguments["debug"] = kernel.debug or knobs.runtime.debug
        arguments["instrumentation_mode"] = knobs.compilation.instrumentation_mode
        device = driver.active.get_current_device()
        ready, keys, target, backend, bind = kernel.device_caches[device]
        bound, specialization, options = bind(**arguments)
        key = compute_cache_key(keys, specialization, options)
        name = kernel.fn.__name__
        if key in ready or (name, key) in self._known:
            return
        self._known.add((name, key))
        found = variant(kernel, target, backend, arguments, (bound, specialization, options))
        if not is_on_disk(kernel, found):
            self.missing.append(found)


def hash_kernels() -> None:
    """Have Triton hash all kernels in one order, before any of them is used.

    The hash of a kernel depends on which functions have been hashed before, and the cache on the
    disk is found by it: processes that differ in the order would not find each other's kernels.
    """
    for module in sorted(found.name for found in iter_modules(kernels.__path__)):
        members = vars(import_module(f"{kernels.__name__}.{module}"))
        for name in sorted(name for name in members if name.endswith("_kernel")):
            members[name].cache_key  # noqa: B018 (it is computed here)


def variant(
    kernel: Any, target: GPUTarget, backend: Any, arguments: dict[str, Any], bound: Any
) -> Variant:
    """The variant that a launch needs, from what Triton has bound its arguments to."""
    options, signature, constants, attributes = kernel._pack_args(backend, arguments, *bound)
    return Variant(
        module=kernel.fn.__module__,
        kernel=kernel.fn.__name__,
        signature=signature,
        constants=constants,
        attributes=attributes,
        options=options.__dict__,
        target=target,
    )


def is_on_disk(kernel: Any, variant: Variant) -> bool:
    """Whether Triton's cache has it; its key covers Triton, the compiler, target and source."""
    source, backend = variant.source(kernel), make_backend(variant.target)
    options = backend.parse_options(dict(variant.options))
    key = get_cache_key(source, backend, options, get_cache_invalidating_env_vars())
    manager = get_cache_manager(sha256(key.encode()).hexdigest())
    return bool(manager.get_group(f"{source.name[:150]}.json"))
