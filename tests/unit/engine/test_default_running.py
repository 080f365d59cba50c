"""How many requests run at once, if no number is asked for."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from ingot import LLM
from ingot.engine.model.memory import CacheSize, sequences_for
from ingot.errors import ConfigError
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType

GIB = 1 << 30


@dataclass(frozen=True)
class Layer:
    """The keys and values of a layer of an 8B model: 4 KiB a token as f16."""

    head_size: int = 128
    rows: int = 16
    window: int = 0


LAYOUT = KvLayout.of([Layer()] * 32, KvType.F16)  # 128 MiB for 1024 tokens


@pytest.mark.parametrize(
    ("room", "sequences"),
    [(8 * GIB, 32), (23 * GIB, 32), (48 * GIB, 96), (139 * GIB, 256), (1 << 50, 256)],
)
def test_a_gpu_runs_as_many_as_its_memory_has_room_for(room: int, sequences: int) -> None:
    assert sequences_for(LAYOUT, 8192, room) == sequences


@pytest.mark.parametrize(
    ("room", "context", "tokens"),
    [
        (139 * GIB, 8192, 256 * 2048),
        (48 * GIB, 8192, 24 * 8192),  # half of the room: 128 KiB a token
        (139 * GIB, 512, 256 * 512),  # of each sequence a whole context
        (8 * GIB, 65536, 65536),  # one context in any case
    ],
)
def test_the_cache_of_a_gpu(room: int, context: int, tokens: int) -> None:
    size = CacheSize.of(LAYOUT, context, None, room, sequences=256)
    assert size.blocks * BLOCK_TOKENS == tokens


def test_the_cache_of_a_cpu_is_four_contexts_or_a_quarter() -> None:
    assert CacheSize.of(LAYOUT, 8192, None, 139 * GIB).blocks * BLOCK_TOKENS == 4 * 8192
    assert CacheSize.of(LAYOUT, 8192, None, 8 * GIB).blocks * BLOCK_TOKENS == 2 * 8192


def test_short_contexts_need_less() -> None:
    assert sequences_for(LAYOUT, 256, 24 * GIB) == 192


def test_the_cpu_runs_32(tiny: Path) -> None:
    with LLM(tiny, threads=1) as llm:
        assert llm.engine.max_running == 32
    with LLM(tiny, threads=1, max_running=5) as llm:
        assert llm.engine.max_running == 5
    with pytest.raises(ConfigError, match="max_running is 0"):
        LLM(tiny, max_running=0)
