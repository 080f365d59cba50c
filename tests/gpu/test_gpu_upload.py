"""Sending: every byte arrives in its order; what goes wrong is raised, and no thread stays."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot.backends.gpu import find_device
from ingot.backends.gpu.upload import Uploader

DEVICE = find_device()
SIZES = [1, 7, (32 << 20) - 1, (32 << 20) + 5, 3, (96 << 20) + 17]


def numbers(seed: int, size: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def source(seed: int) -> Callable[[], NDArray[np.uint8]]:
    return lambda: numbers(seed, SIZES[seed]).reshape(1, -1)


def test_all_arrives() -> None:
    told: list[tuple[int, int]] = []
    sources = [source(seed) for seed in range(len(SIZES))]
    with Uploader(DEVICE, sources, sum(SIZES), lambda *sent: told.append(sent)) as uploader:
        found = [uploader.receive(size).cpu().numpy() for size in SIZES]
    for seed, (size, data) in enumerate(zip(SIZES, found, strict=True)):
        np.testing.assert_array_equal(data, numbers(seed, size))
    assert uploader.sent == sum(SIZES)
    assert uploader.seconds > 0
    assert told[-1] == (sum(SIZES), sum(SIZES))
    assert len(told) == 1 + 1 + 1 + 2 + 1 + 4


def test_a_source_that_fails() -> None:
    def broken() -> NDArray[np.uint8]:
        raise OSError("the disk is gone")

    with Uploader(DEVICE, [source(0), broken], 2) as uploader:
        uploader.receive(1)
        with pytest.raises(OSError, match="the disk is gone"):
            uploader.receive(1)


def test_more_than_there_is() -> None:
    with Uploader(DEVICE, [source(0)], 2) as uploader, pytest.raises(EOFError):
        uploader.receive(2)


def test_an_end_before_the_end() -> None:
    """The threads stop though nobody takes the rest."""
    read: list[int] = []

    def endless() -> NDArray[np.uint8]:
        read.append(1)
        return numbers(0, 64 << 20)

    with pytest.raises(KeyboardInterrupt), Uploader(DEVICE, [endless] * 100, 100):
        raise KeyboardInterrupt
    assert len(read) <= 3
    assert not [thread for thread in threading.enumerate() if "ingot-upload" in thread.name]
