"""JSON read character by character: as far as Python's own reader would go."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.reply import json_reader
from ingot.reply.text_reader import Mismatch, Reader

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def read(text: str) -> str | None:
    """What is taken of a text as one value; None if it has no value at its beginning."""
    reader = Reader()
    reading = json_reader.value(reader)
    try:
        next(reading)
        reading.send(text)
        reading.send("")
    except StopIteration:
        return reader.release()
    except Mismatch:
        return None
    raise AssertionError("a text that has ended was not enough")


@given(VALUES, st.booleans(), st.sampled_from([None, 2]))
def test_values_are_read_to_their_end(value: object, ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    assert read(text) == text
    assert read(text + " ,]") == text


@given(VALUES, st.integers(0, 200), st.sampled_from('"{}[],:\\ \n\x01u0e+-.tx9'))
def test_one_wrong_character(value: object, at: int, char: str) -> None:
    text = json.dumps(value)
    at %= len(text)
    changed = text[:at] + char + text[at + 1 :]
    try:
        _, end = json.JSONDecoder().raw_decode(changed)
        expected: str | None = changed[:end]
    except ValueError:
        expected = None
    found = read(changed)
    if expected is not None and found is None:
        # Python stops before what makes a number wrong: "1.x" is 1, "1e" is 1, "01" is 0.
        assert expected.lstrip("-").isdigit() or "." in expected
    else:
        assert found == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nul",
        '"a\nb"',
        '"\x01"',
        "-",
        "1.",
        "1e",
        '"a',
        '"\\x"',
        '"\\u12"',
        '{"a"',
        "[1,]",
        "NaN",
    ],
)
def test_no_values(text: str) -> None:
    assert read(text) is None
