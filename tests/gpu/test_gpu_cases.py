"""Every kernel, and every branch of one, has a case in which it is compiled for all devices."""

from collections import defaultdict
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from gpu.kernel_cases import cases
from ingot.backends.gpu import kernels

NUMBERED = {"ACTIVATION": range(8), "GATING": range(4), "PARTS": (1, 2, 3), "TABLE": range(3)}
NUMBERED |= {"HIGH": range(3), "BITS": (4, 8, 16), "NORM": range(3), "QUERY_NORM": range(3)}


def test_every_kernel_has_a_case() -> None:
    modules = [
        import_module(found.name)
        for found in iter_modules(kernels.__path__, f"{kernels.__name__}.")
    ]
    defined = {name for module in modules for name in vars(module) if name.endswith("_kernel")}
    assert len(defined) > 10
    assert {case.kernel.fn.__name__ for case in cases(assembly=True)} == defined


def test_every_branch_has_a_case() -> None:
    """Options that are on or off are both somewhere; kinds that have numbers are all there."""
    for assembly in (False, True):
        values: dict[tuple[str, str], set[Any]] = defaultdict(set)
        kinds: dict[str, set[Any]] = defaultdict(set)
        for case in cases(assembly=assembly):
            for name, value in case.constants.items():
                values[case.kernel.fn.__name__, name].add(value)
                kinds[name].add(value)
        switches = {
            (kernel, name): found
            for (kernel, name), found in values.items()
            if name != "ASM" and found <= {False, True} and {type(v) for v in found} == {bool}
        }
        assert len(switches) > 20
        assert {at for at, found in switches.items() if found != {False, True}} == set()
        for name, numbers in NUMBERED.items():
            assert kinds[name] >= set(numbers), name
