"""Where the end of a text has stood before: the native lengths against a plain count."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import _native


def repeats_twin(tokens: list[int]) -> list[int]:
    """For each place but the last: how many tokens up to it equal the end of the list."""
    lengths = []
    for place in range(len(tokens) - 1):
        same = 0
        while same <= place and tokens[place - same] == tokens[len(tokens) - 1 - same]:
            same += 1
        lengths.append(same)
    return lengths


@settings(max_examples=300, deadline=None, derandomize=True)
@given(tokens=st.lists(st.integers(0, 2), max_size=60))
def test_lengths_of_repetitions(tokens: list[int]) -> None:
    lengths = np.zeros(len(tokens), np.int32)
    _native.repeat_lengths(np.array(tokens, np.int32), lengths)
    assert lengths[:-1].tolist() == repeats_twin(tokens)
