"""Tiles by a device's shared memory: as tuned on an H200, smaller where it is short.

What the compiler makes of them is measured for four devices in compile_kernels.py.
"""

from dataclasses import replace

import pytest

from ingot.backends.gpu import Device, imagined_device
from ingot.backends.gpu.attention import generation_span, prompt_tile
from ingot.backends.gpu.kernels.attend_prompt import PromptTile
from ingot.backends.gpu.linear import matmul_stages
from ingot.graph.kv_type import KvType

H200 = replace(imagined_device(), assembly=True, ahead=True, shared_memory=227 << 10)
RTX_4090 = replace(imagined_device(), assembly=True, shared_memory=99 << 10)
MI300 = replace(imagined_device(), shared_memory=64 << 10)


@pytest.mark.parametrize(("device", "stages"), [(H200, 3), (RTX_4090, 3), (MI300, 2)])
def test_products_of_half_floats(device: Device, stages: int) -> None:
    assert matmul_stages(device) == stages


@pytest.mark.parametrize(
    ("device", "size", "type", "tile", "span"),
    [
        (H200, 128, KvType.F16, (128, 64), 64),
        (H200, 256, KvType.F16, (128, 64), 64),
        (H200, 256, KvType.Q8_0, (128, 64), 64),
        (H200, 256, KvType.F32, (128, 32), 32),
        (RTX_4090, 128, KvType.F16, (128, 64), 64),
        (RTX_4090, 256, KvType.F16, (64, 32), 64),
        (RTX_4090, 256, KvType.Q8_0, (64, 32), 32),
        (MI300, 128, KvType.F16, (128, 32), 64),
        (MI300, 256, KvType.F16, (64, 16), 32),
        (MI300, 256, KvType.F32, (16, 16), 16),
    ],
)
def test_attention(
    device: Device, size: int, type: KvType, tile: tuple[int, int], span: int
) -> None:
    assert prompt_tile(size, type, device) == PromptTile(*tile)
    assert generation_span(16, size, type, device) == span


@pytest.mark.parametrize(
    ("tuned", "step", "ahead", "expected"),
    [
        (4, 100, False, 4),
        (4, 500, False, 3),
        (4, 500, True, 2),
        (4, 2000, False, 1),
        (1, 9, True, 1),
    ],
)
def test_steps_on_their_way(tuned: int, step: int, ahead: bool, expected: int) -> None:
    device = replace(imagined_device(), ahead=ahead, shared_memory=1000)
    assert device.stages(tuned, step) == expected
