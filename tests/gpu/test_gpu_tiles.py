"""Tiles by a device's shared memory: as tuned on an H200, smaller where it is short.

What the compiler makes of them is measured for four devices in compile_kernels.py.
"""

from dataclasses import replace

import pytest
import torch

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu import Device, imagined_device
from ingot.backends.gpu.attention import generation_span, prompt_tile
from ingot.backends.gpu.cache_layers import attention_work, launches, part_positions
from ingot.backends.gpu.experts import Tiling
from ingot.backends.gpu.kernels.attend_prompt import PromptTile
from ingot.backends.gpu.linear import Cut, wide_tile
from ingot.backends.gpu.memory import DeviceMemory
from ingot.backends.gpu.planes import PlaneForm, PlaneSizes
from ingot.graph import ops as o
from ingot.graph.kv_type import KvType

H200 = replace(imagined_device(), assembly=True, ahead=True, shared_memory=227 << 10)
RTX_4090 = replace(imagined_device(), assembly=True, shared_memory=99 << 10)
MI300 = replace(imagined_device(), shared_memory=64 << 10)


@pytest.mark.parametrize(
    ("device", "columns", "stages"), [(H200, 256, 3), (RTX_4090, 128, 3), (MI300, 128, 2)]
)
def test_many_tokens(device: Device, columns: int, stages: int) -> None:
    sizes = PlaneSizes.of(PlaneForm(4, minimum=True), 4096, 4096)
    cut = Cut.of(sizes, device, shared=False)
    tile = wide_tile(sizes, cut, 1024, True, device)
    assert (tile.columns, tile.stages) == (columns, stages)
    # 128 programs of half the width run at once; 64 wide ones would take twice as long.
    assert wide_tile(sizes, cut, 512, True, device).columns == 128
    shared = Cut.of(sizes, device)
    assert shared.groups == 2
    assert wide_tile(sizes, shared, 512, True, device).columns == 128


def tiling(tokens: int, phase: ExecutionPhase) -> Tiling:
    """Of 128 experts, 8 of which a token uses, on an H200."""
    return Tiling.of(tokens, 8, 128, phase, H200)


@pytest.mark.parametrize(
    ("tokens", "columns"),
    [(1, 16), (170, 16), (512, 32), (1024, 64), (1365, 64), (1366, 128), (2048, 128), (4096, 128)],
)
def test_experts_in_a_prompt(tokens: int, columns: int) -> None:
    """Tiles from 32 to 128 pairs are two thirds full if all experts get the same number."""
    found = tiling(tokens, ExecutionPhase.PROMPT)
    assert (found.columns, found.whole, found.single) == (columns, columns >= 64, False)
    share = tokens * 8 / 128
    if columns > 16:
        assert share / (columns * -(-share // columns)) > 0.66
    assert found.most >= tokens * 8 / columns


@pytest.mark.parametrize(
    ("tokens", "columns", "whole"),
    [(1, 8, False), (2, 8, False), (64, 8, False), (256, 32, False), (512, 64, True)],
)
def test_experts_in_decode(tokens: int, columns: int, whole: bool) -> None:
    """Most experts have one tile, so that their weights are read once."""
    found = tiling(tokens, ExecutionPhase.GENERATION)
    assert (found.columns, found.whole, found.single) == (columns, whole, tokens == 1)


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


@pytest.mark.parametrize(
    ("heads", "size", "context", "tokens"),
    [(20, 128, 8192, 256), (128, 512, 8192, 32), (20, 512, 8192, 192), (32, 128, 100, 256)],
)
def test_parts_of_many_tokens(heads: int, size: int, context: int, tokens: int) -> None:
    """Launches decode fewer tokens if heads are many and large: parts have 256 MiB."""
    value = o.Value("out", heads * size)
    op = o.Attend(query=value, out=value, kv_layer=0, heads=heads, kv_heads=1, scale=1.0)
    work = attention_work(DeviceMemory(torch.device("meta")), [op], context, 256)
    parts = -(-context // part_positions(context, 256))
    assert work.mixed.numel() == tokens * heads * parts * size
    assert list(launches(work, heads, parts, 600))[:2] == [(0, tokens), (tokens, tokens)]
    assert sum(count for _, count in launches(work, heads, parts, 600)) == 600


@pytest.mark.parametrize(
    ("context", "sequences", "positions"),
    [(100, 1, 128), (8192, 64, 128), (8192, 65, 256), (16384, 64, 256), (131072, 256, 2048)],
)
def test_parts_are_longer_beside_many_sequences(
    context: int, sequences: int, positions: int
) -> None:
    assert part_positions(context, sequences) == positions
