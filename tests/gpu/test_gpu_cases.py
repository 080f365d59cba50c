"""Every kernel, and every branch of one, has a case in which it is compiled for all devices."""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, get_type_hints

from gpu.kernel_cases import cases
from ingot.backends.gpu import kernels
from ingot.quant import formats

NUMBERED = {"ACTIVATION": range(8), "ROUTER.gating": range(4), "epilogue.widths": (1, 2, 3)}
LEVELS = {format.coding.levels for format in formats().values() if format.coding}
NUMBERED |= {"FORM.levels": LEVELS, "FORM.high": range(3), "FORM.bits": (4, 8, 16)}
NUMBERED |= {"SEEN": range(5), "NORM": range(3), "HEAD.query_norm": range(3)}
# Two matrices in one kernel are only stored, and experts have no residual.
NEVER = {("linear_pair_kernel", f"{side}.epilogue.residual") for side in "ab"}
NEVER |= {("expert_kernel", "epilogue.residual")}
# Chunks of prompts: a kernel for one decay, and one for others.
NEVER |= {(f"scan_{kind}_kernel", "FORM.one_decay") for kind in ("chunk", "elements")}
LATENTS = [f"attend_latents_{phase}_kernel" for phase in ("prompt", "generation")]
LATENTS += ["attend_chosen_kernel"]
PARTS = ("sinks", "bias", "slopes")
NEVER |= {(kernel, f"attention.{part}") for kernel in LATENTS for part in PARTS}
NEVER |= {("store_latents_kernel", part) for part in ("heads.norm.weight", "HEAD.norms_last")}
UNNORMED = ("norm.weight", "rope.cos", "rope.sin", "HEAD.norms_last")
NEVER |= {("rope_kernel", part) for part in UNNORMED}
ROUNDED = ["attend_generation", "attend_prompt", "expert", "join_parts", "linear", "norm"]
ROUNDED += ["linear_wide", "activate", "norm_runs", "xielu"]
ROUNDED += ["attend_latents_generation", "attend_latents_prompt", "head_linear"]
ROUNDED += ["attend_chosen"]


def test_every_kernel_has_a_case() -> None:
    modules = [
        import_module(found.name)
        for found in iter_modules(kernels.__path__, f"{kernels.__name__}.")
    ]
    defined = {name for module in modules for name in vars(module) if name.endswith("_kernel")}
    assert len(defined) > 10
    assert {case.kernel.fn.__name__ for case in cases(assembly=True)} == defined


def members(name: str, value: Any) -> Iterator[tuple[str, Any, bool]]:
    """What is in an argument: its path, the value, and whether it may be None."""
    if is_dataclass(value):
        for part in fields(value):
            yield f"{name}.{part.name}", getattr(value, part.name), False
    elif hasattr(value, "_fields"):
        hints = get_type_hints(type(value))
        for part, inner in zip(value._fields, value, strict=True):
            found = list(members(f"{name}.{part}", inner))
            optional = type(None) in getattr(hints[part], "__args__", ())
            yield from ((path, held, optional or inside) for path, held, inside in found)
    elif isinstance(value, tuple):
        yield name, len(value), False
    else:
        yield name, value, False


def test_every_branch_has_a_case() -> None:
    """What is on or off, or may be missing, is seen both ways; numbered kinds are all there."""
    for assembly in (False, True):
        values: dict[tuple[str, str], set[Any]] = defaultdict(set)
        kinds: dict[str, set[Any]] = defaultdict(set)
        optional: set[tuple[str, str]] = set()
        outputs: dict[str, set[Any]] = defaultdict(set)
        for case in cases(assembly=assembly):
            kernel = case.kernel.fn.__name__
            tested = set(re.findall(r"\b(\w+) is not None", inspect.getsource(case.kernel.fn)))
            for name, argument in case.arguments.items():
                for path, value, may_miss in members(name, argument):
                    if path.split(".")[-1] == "out":
                        outputs[kernel].add(value.dtype)
                    values[kernel, path].add(value if isinstance(value, bool) else value is None)
                    kinds[path].add(value)
                    if may_miss or path in tested:
                        optional.add((kernel, path))
        switches = {
            at: found
            for at, found in values.items()
            if at[1] != "ASM" and (at in optional or _is_switch(kinds[at[1]]))
        }
        assert len(switches) > 20
        assert {at for at, found in switches.items() if found != {False, True}} - NEVER == set()
        for name in ROUNDED:
            assert len(outputs[f"{name}_kernel"]) == 2, name
        for name, numbers in NUMBERED.items():
            assert kinds[name] >= set(numbers), name


def _is_switch(found: set[Any]) -> bool:
    return {type(value) for value in found} == {bool}
