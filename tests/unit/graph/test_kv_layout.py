"""Where keys and values lie: groups, offsets and bytes, and what cannot be stored."""

import pytest

from ingot.errors import ModelError
from ingot.graph import KvLayer
from ingot.graph.kv_layout import BLOCK_TOKENS, KvGroup, KvLayout, KvPlace
from ingot.graph.kv_type import KvType

BYTES_PER_64 = {"F32": 256, "F16": 128, "BF16": 128, "Q8_0": 68, "Q4_0": 36, "FP8": 66}


@pytest.mark.parametrize("type", KvType)
def test_bytes_of_a_block(type: KvType) -> None:
    """Keys and values of three heads of 64, for every token of the block."""
    layout = KvLayout.of([KvLayer(3, 64, 0)], type)
    assert layout.groups == (KvGroup(0, 2 * 3 * BYTES_PER_64[type.name] * BLOCK_TOKENS),)
    assert layout.places == (KvPlace(0, 0),)
    assert layout.type is type


def test_layers_with_the_same_window_share_blocks() -> None:
    """Groups in order of first use; layers one after the other, of any size."""
    layers = [KvLayer(2, 16, 8), KvLayer(1, 16, 0), KvLayer(4, 16, 8), KvLayer(1, 32, 0)]
    layout = KvLayout.of(layers, KvType.F16)
    head = 2 * 16 * 2 * BLOCK_TOKENS  # key and value of a head of 16
    assert layout.groups == (KvGroup(8, 6 * head), KvGroup(0, 3 * head))
    assert layout.places == (KvPlace(0, 0), KvPlace(1, 0), KvPlace(0, 2 * head), KvPlace(1, head))


@pytest.mark.parametrize("type", [KvType.Q8_0, KvType.Q4_0])
def test_heads_that_are_no_whole_blocks(type: KvType) -> None:
    message = f"of 80 elements cannot be stored as {type.name}, which takes multiples of 32"
    with pytest.raises(ModelError, match=message):
        KvLayout.of([KvLayer(1, 64, 0), KvLayer(1, 80, 0)], type)
    KvLayout.of([KvLayer(1, 80, 0)], KvType.BF16)
