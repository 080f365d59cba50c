"""The scan of JSON before it is parsed: it counts as a parser would, and lets all else through."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot._native import JsonFault, scan_json

_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def scan(body: bytes, values: int = 1000, depth: int = 10, word: int = 20) -> JsonFault:
    return scan_json(body, values=values, depth=depth, word=word)


def counted(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(counted, value.values()))
    return 1 + sum(map(counted, value)) if isinstance(value, list) else 1


def deep(value: Any) -> int:
    if not isinstance(value, (dict, list)):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(deep, inner), default=0)


@given(_values, st.booleans(), st.sampled_from([None, 1]))
def test_values_and_depth_are_those_of_the_document(
    value: Any, ascii_only: bool, indent: int | None
) -> None:
    try:
        body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    except UnicodeEncodeError:
        body = json.dumps(value, indent=indent).encode()
    if "\\ud" in json.dumps(value).lower():
        return  # halves of pairs are the business of the test below
    values, depth = counted(value), deep(value)
    assert scan(body, values, depth) is JsonFault.NONE
    assert scan(body, values - 1, depth) is JsonFault.VALUES
    if depth:
        assert scan(body, values, depth - 1) is JsonFault.DEPTH


@given(st.binary())
def test_any_bytes_are_scanned_and_counted_within_their_number(body: bytes) -> None:
    """None have more values, depth or digits than there are bytes, and none crash the scan."""
    limit = len(body) + 1
    fault = scan(body, values=limit, depth=limit, word=limit)
    assert fault not in (JsonFault.VALUES, JsonFault.DEPTH, JsonFault.NUMBER)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"[NaN]", JsonFault.NOT_FINITE),
        (b"[-Infinity]", JsonFault.NOT_FINITE),
        (b"1e309", JsonFault.NOT_FINITE),
        (b"-1E+309", JsonFault.NOT_FINITE),
        (b"1e308", JsonFault.NONE),
        (b"1e-999", JsonFault.NONE),
        (b"9" * 20, JsonFault.NONE),
        (b"9" * 21, JsonFault.NUMBER),
        (b'"\\ud800"', JsonFault.SURROGATE),
        (b'"\\ud800\\u0041"', JsonFault.SURROGATE),
        (b'"\\udc00"', JsonFault.SURROGATE),
        (b'"\\ud83c\\udf6e"', JsonFault.NONE),
        (b'"\\\\ud800"', JsonFault.NONE),
        (b'"\\"NaN\\""', JsonFault.NONE),
        (b'"\xed\x9f\xbf"', JsonFault.NONE),
        (b'"\xed\xa0\x80"', JsonFault.SURROGATE),
        ("[1]".encode("utf-16"), JsonFault.ENCODING),
        (b'"\x00"', JsonFault.ENCODING),
        (b'{"a":1,"b":2,"a":3}', JsonFault.DUPLICATE),
        (b'{"a":{"a":1},"b":{"a":[{"a":1}]}}', JsonFault.NONE),
        (b"]]]}}}", JsonFault.NONE),
        (b":" * 1001, JsonFault.VALUES),
        (b'"\\u12', JsonFault.NONE),
        (b'"\\', JsonFault.NONE),
        (b'"\\ud800\\u', JsonFault.SURROGATE),
        (b"", JsonFault.NONE),
    ],
)
def test_what_no_parser_should_take(body: bytes, fault: JsonFault) -> None:
    assert scan(body) is fault
