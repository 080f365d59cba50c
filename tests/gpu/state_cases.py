"""Kernels of operations with states, with arguments as they are launched."""

from collections.abc import Iterator
from dataclasses import replace

from gpu.kernel_case import EVEN, FLOATS, INTS, ODD, REAL, KernelCase, optional
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.kernels.convolution import (
    Convolution,
    ConvolutionForm,
    convolve_kernel,
    keep_rows_kernel,
)
from ingot.backends.gpu.kernels.delta_rule import (
    DeltaForm,
    DeltaRule,
    DeltaWork,
    delta_chunk_kernel,
    delta_prepare_kernel,
    delta_walk_kernel,
)
from ingot.backends.gpu.kernels.state_scan import (
    ScanForm,
    StateScan,
    scan_chunk_kernel,
    scan_elements_kernel,
    scan_walk_kernel,
)
from ingot.backends.gpu.kernels.states import Batch, StateView
from ingot.backends.gpu.states import chunk_stages, products_of

STATE = StateView(INTS, ODD, FLOATS, EVEN, EVEN)
BATCH = Batch(INTS, INTS, INTS)
MODES = (1, 2)  # single tokens, guesses


def state_cases(device: Device) -> Iterator[KernelCase]:
    """Convolutions, state spaces and delta rules, of the sizes that models have."""
    step = {"state": STATE, "batch": BATCH}
    yield from _convolutions(step)
    yield from _scans(step, device)
    yield from _delta_rules(step, device)


def _convolutions(step: dict[str, object]) -> Iterator[KernelCase]:
    for bias in (False, True):
        conv = Convolution(FLOATS, FLOATS, optional(bias), FLOATS, EVEN)
        form = ConvolutionForm(taps=3 + bias, silu=bias, block=256)
        arguments = step | {"conv": conv, "FORM": form, "SINGLE": bias}
        yield KernelCase(f"convolve {bias}", convolve_kernel, arguments)
        for mode in (0, 2):
            kept = step | {"conv": conv, "numbers": ODD, "FORM": form, "MODE": mode}
            yield KernelCase(f"keep rows {bias} {mode}", keep_rows_kernel, kept)


def _scans(step: dict[str, object], device: Device) -> Iterator[KernelCase]:
    scan = StateScan(FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS)
    step = step | {"scan": scan, "numbers": ODD}
    for one_decay, heads, size, states, block in (
        (True, 128, 64, 128, 16),
        (False, 8192, 1, 16, 128),
    ):
        form = ScanForm(
            heads=heads,
            head_size=size,
            groups=1,
            group_channels=heads * size,
            states=states,
            state_room=states,
            vectors=heads * size // 16,
            one_decay=one_decay,
            block=block,
            precision=products_of(device),
            stages=chunk_stages(device),
        )
        for mode in MODES:
            walked = step | {"FORM": form, "MODE": mode}
            options = {"enable_fp_fusion": False}
            yield KernelCase(f"scan {size} {mode}", scan_walk_kernel, walked, options=options)
    elements = step | {"FORM": replace(form, block=8)}
    yield KernelCase("scan elements", scan_elements_kernel, elements)
    form = replace(form, heads=128, head_size=64, groups=8, group_channels=1024, states=128)
    form = replace(form, state_room=128, vectors=64, one_decay=True, block=32)
    yield KernelCase("scan chunk", scan_chunk_kernel, step | {"FORM": form})


def _delta_rules(step: dict[str, object], device: Device) -> Iterator[KernelCase]:
    delta = DeltaRule(*([FLOATS] * 8), REAL, REAL)
    work = DeltaWork(FLOATS, FLOATS)
    for tiled in (False, True):
        form = DeltaForm(
            heads=32,
            key_heads=16,
            tiled=tiled,
            key_size=128,
            key_room=128,
            value_size=128,
            vectors=8,
            columns=32,
            precision=products_of(device),
            stages=chunk_stages(device),
        )
        arguments = {"delta": delta, "FORM": form}
        for mode in MODES:
            walked = step | arguments | {"numbers": ODD, "MODE": mode}
            options = {"enable_fp_fusion": False}
            yield KernelCase(f"delta {tiled} {mode}", delta_walk_kernel, walked, options=options)
        prepared = arguments | {"work": work, "batch": BATCH, "tokens": ODD}
        yield KernelCase(f"delta prepare {tiled}", delta_prepare_kernel, prepared)
        chunked = step | arguments | {"work": work, "numbers": ODD}
        yield KernelCase(f"delta chunk {tiled}", delta_chunk_kernel, chunked)
