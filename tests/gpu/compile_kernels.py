"""Every kernel compiles for the devices we mean, without having them: `make test-gpu-interpreter`.

It takes minutes, so the name keeps it out of the tests that run without being asked for.
"""

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not here: pip install ingot-llm[gpu]")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import make_backend  # noqa: E402
from triton.runtime.jit import create_function_from_signature  # noqa: E402

if triton.knobs.runtime.interpret:
    pytest.skip("the interpreter does not compile", allow_module_level=True)

from gpu.kernel_cases import KernelCase, cases  # noqa: E402
from ingot.backends.gpu import GpuBackend, GpuPlan  # noqa: E402
from ingot.backends.gpu import compile_ahead as compile_ahead_module  # noqa: E402
from ingot.backends.gpu.compile_ahead import compile_ahead  # noqa: E402
from ingot.backends.gpu.device import imagined_device  # noqa: E402
from ingot.backends.gpu.variants import (  # noqa: E402
    Variant,
    Variants,
    hash_kernels,
    is_on_disk,
    variant,
)
from ingot.errors import ModelError  # noqa: E402
from ingot.gguf import GgmlType, GgufLoader  # noqa: E402
from ingot.graph.kv_layout import KvLayout  # noqa: E402
from ingot.graph.kv_type import KvType  # noqa: E402
from ingot.models import build_graph  # noqa: E402
from models.tiny_models import Fixture  # noqa: E402

# And bytes of shared memory that a program may have. Those of sm_80 are what cards of sm_86 and
# sm_89 have, which take the same code: an A100 has more.
TARGETS = {
    "sm_80": (GPUTarget("cuda", 80, 32), 99 << 10),
    "sm_90": (GPUTarget("cuda", 90, 32), 227 << 10),
    "gfx942": (GPUTarget("hip", "gfx942", 64), 64 << 10),
    "gfx1100": (GPUTarget("hip", "gfx1100", 32), 64 << 10),
}


def variant_of(case: KernelCase, target: GPUTarget) -> tuple[Any, Variant]:
    """What a launch with these arguments compiles, made the way Triton makes it."""
    hash_kernels()
    kernel, backend = case.kernel, make_backend(target)
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    launched = {**case.arguments, "num_warps": case.warps, **case.options}
    return kernel, variant(kernel, target, backend, launched, bind(**launched))


@pytest.mark.parametrize("name", TARGETS)
def test_compiles(name: str) -> None:
    target, shared_memory = TARGETS[name]
    nvidia, ahead = target.backend == "cuda", name == "sm_90"
    for plain in cases(assembly=nvidia, ahead=ahead, shared_memory=shared_memory):
        case = plain.ordered(ahead)
        try:
            kernel, asked = variant_of(case, target)
            built = triton.compile(asked.source(kernel), target=target, options=asked.options)
        except Exception as error:
            error.add_note(f"{case.name} for {name}")
            raise
        assert built.asm["cubin" if nvidia else "hsaco"]
        assert built.metadata.shared <= shared_memory, case.name


def test_compiled_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes leave kernels where this one finds them; what they cannot do is an error."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    target = TARGETS["sm_90"][0]
    few = list(cases(assembly=True))[-3:]
    variants = [variant_of(case.ordered(ahead=True), target) for case in few]
    assert not any(is_on_disk(kernel, variant) for kernel, variant in variants)
    told: list[tuple[int, int]] = []
    compile_ahead([variant for _, variant in variants], lambda *step: told.append(step))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert all(is_on_disk(kernel, variant) for kernel, variant in variants)
    unknown = replace(variants[0][1], kernel="no_such_kernel")
    with pytest.raises(ModelError, match="no_such_kernel cannot be compiled"):
        compile_ahead([unknown])


def test_ctrl_c_is_not_for_the_processes_that_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reaches the process that asked, which ends them without waiting for what they compile."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    started: list[subprocess.Popen[bytes]] = []
    groups: list[int] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            groups.append(os.getpgid(self.pid))

    def interrupt(_: int, __: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compile_ahead_module.subprocess, "Popen", Recorded)
    few = [
        variant_of(case.ordered(ahead=True), TARGETS["sm_90"][0])[1]
        for case in cases(assembly=True)
    ]
    with pytest.raises(KeyboardInterrupt):
        compile_ahead(few[-4:], interrupt)
    assert started
    assert os.getpgrp() not in groups
    assert all(process.returncode == -signal.SIGKILL for process in started)


class ImaginedDriver:
    """Triton's view of a GPU that is not here."""

    def get_current_device(self) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return TARGETS["sm_90"][0]


@pytest.mark.parametrize("name", ["llama", "mamba2-groups"])
def test_all_kernels_of_a_model_are_listed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without running any; a hundred more sequences need few more, and no layer its own."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(triton.runtime.driver, "_active", ImaginedDriver())
    listed = {}
    for layers, sequences in ((1, 64), (2, 64), (2, 200)):
        fixture = Fixture.load(name).first_layers(layers)
        path = fixture.write(tmp_path / "m.gguf", GgmlType.Q8_0)
        device = replace(imagined_device(), torch=torch.device("cpu"))
        with GgufLoader(path) as model:
            graph = build_graph(model, 256)
            layout = KvLayout.of(graph.kv_layers, KvType.F16, graph.states)
            plan = GpuPlan.of(
                graph, model, layout, device, context=256, tokens=256, sequences=sequences
            )
            backend, variants = GpuBackend(plan, model, blocks=8, states=8), Variants()
            for run in backend.empty_steps(variants):
                run()
        listed[layers, sequences] = len(variants)
        assert len(variants.missing) == len(variants)
    assert 10 < listed[1, 64] <= listed[2, 64] < listed[1, 64] + 10
    assert abs(listed[2, 200] - listed[2, 64]) < 20  # parts of attention are longer, too: fewer
