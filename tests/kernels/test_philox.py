"""The counter-based generator: known answers, a plain Python twin, and an even spread."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import _native

LARGEST = 2**64 - 1


def philox_twin(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds as the paper draws them."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (p1 >> 32) ^ c1 ^ k0,
            p1 & 0xFFFFFFFF,
            (p0 >> 32) ^ c3 ^ k1,
            p0 & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return [c0, c1, c2, c3]


def uniform_twin(seed: int, place: int, purpose: int) -> float:
    low = 0xFFFFFFFF
    block = philox_twin([place & low, place >> 32, purpose, 0], [seed & low, seed >> 32])
    return ((block[0] << 32 | block[1]) >> 11) / 2**53


def test_the_twin_gives_the_published_answers() -> None:
    # The known answers for philox4x32-10 of the authors' own library.
    assert philox_twin([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox_twin([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2) == [
        0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD,
    ]  # fmt: skip
    digits_of_pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    assert philox_twin(digits_of_pi, [0xA4093822, 0x299F31D0]) == [
        0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1,
    ]  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, LARGEST), place=st.integers(0, LARGEST), purpose=st.integers(0, 2**32 - 1)
)
def test_native_numbers_are_those_of_the_twin(seed: int, place: int, purpose: int) -> None:
    assert _native.uniform_at(seed, place, purpose) == uniform_twin(seed, place, purpose)


def test_these_numbers_never_change() -> None:
    # A change here changes every seeded text.
    assert [_native.uniform_at(1234, place, 0).hex() for place in range(3)] == [
        uniform_twin(1234, place, 0).hex() for place in range(3)
    ]
    assert _native.uniform_at(0, 0, 0) == (0x6627E8D5E169C58D >> 11) / 2**53


def test_numbers_spread_evenly() -> None:
    places, bins = 20000, 50
    for purpose in (0, 1):
        numbers = np.array([_native.uniform_at(7, place, purpose) for place in range(places)])
        assert 0.0 <= numbers.min() <= numbers.max() < 1.0
        counts = np.histogram(numbers, bins, (0, 1))[0]
        expected = places / bins
        # The 99.9% point of chi-square with 49 degrees of freedom is 85.4.
        assert ((counts - expected) ** 2 / expected).sum() < 85.4
        assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.03
