"""Every kernel compiles for the devices we mean, without having them: `make test-gpu-interpreter`.

It takes minutes, so the name keeps it out of the tests that run without being asked for.
"""

from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="Triton is not here: pip install ingot-llm[gpu]")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource, make_backend  # noqa: E402
from triton.runtime.jit import create_function_from_signature  # noqa: E402

if triton.knobs.runtime.interpret:
    pytest.skip("the interpreter does not compile", allow_module_level=True)

from gpu.kernel_cases import KernelCase, cases  # noqa: E402

# And bytes of shared memory that a program may have. Those of sm_80 are what cards of sm_86 and
# sm_89 have, which take the same code: an A100 has more.
TARGETS = {
    "sm_80": (GPUTarget("cuda", 80, 32), 99 << 10),
    "sm_90": (GPUTarget("cuda", 90, 32), 227 << 10),
    "gfx942": (GPUTarget("hip", "gfx942", 64), 64 << 10),
    "gfx1100": (GPUTarget("hip", "gfx1100", 32), 64 << 10),
}


def compiled(case: KernelCase, target: GPUTarget) -> Any:
    """What a launch with these arguments compiles, made the way Triton makes it."""
    kernel, backend = case.kernel, make_backend(target)
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, options = bind(**case.arguments, num_warps=case.warps, **case.options)
    _, signature, constants, attributes = kernel._pack_args(
        backend, dict(options), bound, specialization, options
    )
    source = ASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=target, options=options)


@pytest.mark.parametrize("name", TARGETS)
def test_compiles(name: str) -> None:
    target, shared_memory = TARGETS[name]
    nvidia, ahead = target.backend == "cuda", name == "sm_90"
    for plain in cases(assembly=nvidia, ahead=ahead, shared_memory=shared_memory):
        case = plain.ordered(ahead)
        try:
            built = compiled(case, target)
        except Exception as error:
            error.add_note(f"{case.name} for {name}")
            raise
        assert built.asm["cubin" if nvidia else "hsaco"]
        assert built.metadata.shared <= shared_memory, case.name
