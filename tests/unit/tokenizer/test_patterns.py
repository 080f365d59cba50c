"""The pattern matcher beside the `regex` package."""

from unicodedata import category

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import _native
from ingot.tokenizer import pretokenizers

TABLE = pretokenizers._TABLE
PATTERNS = sorted(
    {step for entry in TABLE.values() for step in entry.passes if not step.startswith("@")}
)

# Classes do not depend on code points that Unicode has assigned since; what ranges say of
# white space beyond ASCII is llama.cpp's own (see the test below).
ALPHABET = st.characters(codec="utf-8").filter(lambda c: category(c) != "Cn" and c != "\u3000")
PIECES = st.one_of(
    ALPHABET,
    st.sampled_from(
        ["'s", "'LL", "'", " ", "  ", "\n", "\r\n", "\t", "123", "Abc", "aBC", "é", "É"]
    ),
    st.sampled_from(
        ["中文", "한", "カナ", "́", "٣", "½", "$", "~", "!", "a b c", "<sentinel:12>", "IMGIMGABZ"]
    ),
    st.integers(0, 10**12).map(str),
    st.text("ab 1\n'é", max_size=12),
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)


def regex_pieces(pattern: str, text: str) -> list[str]:
    pieces, done = [], 0
    for match in regex.finditer(pattern, text, flags=regex.VERSION1):
        pieces += [text[done : match.start()], match.group()]
        done = match.end()
    return [piece for piece in [*pieces, text[done:]] if piece]


def pieces(passes: list[str], text: str) -> list[str]:
    return [word.decode() for word in _native.split_words(text.encode(), passes)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_cuts_as_regex_does(pattern: str) -> None:
    @settings(max_examples=40)
    @given(TEXTS)
    def check(text: str) -> None:
        assert pieces([pattern], text) == regex_pieces(pattern, text)

    check()


@given(TEXTS)
def test_a_pass_cuts_the_pieces_of_the_one_before(text: str) -> None:
    passes = list(TABLE["default"].passes)
    expected = [text] if text else []
    for pattern in passes:
        expected = [piece for part in expected for piece in regex_pieces(pattern, part)]
    assert pieces(passes, text) == expected


@pytest.mark.parametrize("name", sorted(TABLE))
def test_nothing_of_a_text_is_lost(name: str) -> None:
    text = "It's 1234567 o'clock,\n\n  \tthe né́w ~tést~ <x> 中文 한국어!  ٣٤1234 \r\n 🦙 "
    words = pieces(list(TABLE[name].passes), text)
    assert "".join(words) == text
    assert all(words)


@given(st.lists(st.sampled_from(["1", "23", "456", "7890", "٣", "a", " ", "x1"]), max_size=12))
def test_digits_in_threes_from_the_right(parts: list[str]) -> None:
    text = "".join(parts)
    cut_behind = regex_pieces(r"[^\p{N}]*\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", text)
    assert pieces(["@thousands"], text) == cut_behind
    cut_before = [part for part in regex.split(r"(?=(?:[0-9]{3})+(?![0-9]))(?<!^)", text) if part]
    assert pieces(["@thousands-ascii"], text) == cut_before


def test_ranges_hold_no_white_space_beyond_ascii() -> None:
    assert pieces(["[\u2000-\u3001]+"], "\u3000\u3001\u2003") == ["\u3000", "\u3001", "\u2003"]
    assert pieces(["[\\s\u3001]+"], "x\u3000\u3001\u2003") == ["x", "\u3000\u3001\u2003"]


def test_unicode_is_that_of_llama_cpp() -> None:
    new_in_15_1 = "\U0002ebf0"
    assert pieces([r"\p{L}+"], f"a{new_in_15_1}b!") == [f"a{new_in_15_1}b", "!"]
    new_in_16 = "\U000105c0"
    assert pieces([r"\p{L}+"], f"a{new_in_16}b") == ["a", new_in_16, "b"]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[a", "unexpected end"),
        ("(?:a", r"expected \)"),
        ("a)", "unbalanced"),
        (r"\p{X}", "unknown category"),
        ("[b-a]", "empty range"),
        ("a{3,2}", "empty range of repeats"),
        ("a{x}", "expected a number"),
        ("(?!(?:a))", "one class"),
        ("\\", "unexpected end"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        _native.split_words(b"text", [pattern])


def test_long_runs_are_cut_whole() -> None:
    """Each would take hours if a failed repeat were walked again from all its starts."""
    spaces = " " * 300_000
    assert pieces([r"\s+$"], spaces + "5") == [spaces + "5"]
    assert pieces([r"\s+$"], "5" + spaces) == ["5", spaces]
    words = pieces(list(TABLE["jais-2"].passes), spaces + "a")
    assert "".join(words) == spaces + "a"
    assert [len(word) for word in words[:586]] == [512] * 585 + [256]
    capitals = "A" * 300_000
    assert pieces(list(TABLE["tekken"].passes), capitals + "é") == [capitals + "é"]
    assert pieces(list(TABLE["exaone-moe"].passes), "a " * 200_000) == ["a " * 199_999 + "a", " "]
