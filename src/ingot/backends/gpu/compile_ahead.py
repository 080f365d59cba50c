"""Compile variants of kernels in several processes, into Triton's cache on the disk.

Variants come in; when this returns, a launch finds them there. The processes know neither the model
nor the device: they compile for the target that a variant names.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from importlib import import_module
from queue import SimpleQueue
from typing import Any, BinaryIO

import triton

from ingot.backends.backend import OnProgress
from ingot.backends.gpu.variants import Variant, hash_kernels
from ingot.errors import ModelError
from ingot.machine import new_group, usable_cores

_MOST_PROCESSES = 16  # each takes half a gigabyte of memory
_LAUNCHERS = {
    "cuda": ("triton.backends.nvidia.driver", "CudaLauncher"),
    "hip": ("triton.backends.amd.driver", "HIPLauncher"),
}
_MAIN = "from ingot.backends.gpu.compile_ahead import main; main()"


def compile_ahead(variants: Sequence[Variant], progress: OnProgress | None = None) -> None:
    """Compile them; `progress` is called with how many are done, and with how many there are."""
    if not variants:
        return
    count = min(_MOST_PROCESSES, usable_cores(), len(variants))
    idle: SimpleQueue[_Process] = SimpleQueue()
    with ExitStack() as stack:
        processes = [stack.enter_context(_Process()) for _ in range(count)]
        for process in processes:
            idle.put(process)

        def compile_one(variant: Variant) -> None:
            process = idle.get()
            try:
                process.compile(variant)
            finally:
                idle.put(process)

        pool = stack.enter_context(ThreadPoolExecutor(count, "ingot-compile"))
        jobs = [pool.submit(compile_one, variant) for variant in variants]
        try:
            for done, job in enumerate(as_completed(jobs)):
                job.result()
                if progress:
                    progress(done + 1, len(jobs))
        except BaseException:  # Ctrl-C, too: what is being compiled is not waited for
            for job in jobs:
                job.cancel()
            for process in processes:
                process.kill()
            raise


class _Process:
    """A process that compiles one variant after the other."""

    def __enter__(self) -> "_Process":
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MAIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
            **new_group(),  # Ctrl-C does not reach it, but the process that asked
        )
        return self

    def compile(self, variant: Variant) -> None:
        """Have it compiled."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump(variant, self._process.stdin)
            self._process.stdin.flush()
            error = pickle.load(self._process.stdout)
        except (OSError, EOFError) as ended:
            raise ModelError(
                f"the process that compiles {variant.kernel} has ended, perhaps because memory "
                "ran out: free some, and open the model again"
            ) from ended
        if error is not None:
            raise ModelError(f"{variant.kernel} cannot be compiled for this GPU: {error}")

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.communicate()


def main() -> None:
    """Compile what comes in at stdin until it ends; answer each with an error or None."""
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a compiler prints is no answer
    hash_kernels()
    while (variant := _read(asked)) is not None:
        error = _compile(variant)
        pickle.dump(error, answers)
        answers.flush()


def _read(asked: BinaryIO) -> Variant | None:
    try:
        variant: Variant = pickle.load(asked)
    except EOFError:
        return None
    return variant


def _compile(variant: Variant) -> str | None:
    try:
        kernel: Any = getattr(import_module(variant.module), variant.kernel)
        built = triton.compile(
            variant.source(kernel), target=variant.target, options=variant.options
        )
    except Exception as error:  # for the process that asked
        return f"{type(error).__name__}: {error}"
    _build_launcher(built, variant.target.backend)
    return None


def _build_launcher(built: Any, backend: str) -> None:
    """Have the C code compiled, too, that launches a kernel; only a machine with a GPU can."""
    module, name = _LAUNCHERS[backend]
    with suppress(Exception):  # then the first launch does it, or says why it cannot
        getattr(import_module(module), name)(built.src, built.metadata)
