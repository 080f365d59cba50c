"""The end of a text: stop strings across tokens, ends, limits; what is shown and when."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.sampling import SamplingParams, StopChecker
from ingot.sampling.stop import StopStrings
from ingot.tokenizer import Tokenizer

END = 262


def cut_at_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The plain definition: letter by letter, until a stop string ends the text."""
    for length in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:length].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: length - len(longest)], longest
    return text, None


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    pieces=st.lists(st.text("ab", max_size=5), max_size=8),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_stop_strings_in_pieces_are_those_of_the_whole_text(
    pieces: list[str], stops: list[str]
) -> None:
    strings = StopStrings(stops)
    shown, stop = "", None
    for index, piece in enumerate(pieces):
        text, stop = strings.push(piece)
        shown += text
        if stop is not None:
            break
        # All that is shown stays right, whatever comes, and no more is held than needed.
        whole = "".join(pieces[: index + 1])
        for end in ("", "a", "b", "ab", "ba", *stops):
            assert cut_at_stop(whole + end, stops)[0].startswith(shown)
        held = whole[len(shown) :]
        assert held == "" or any(s.startswith(held) for s in stops)
    else:
        shown += strings.flush()
    assert (shown, stop) == cut_at_stop("".join(pieces), stops)


def run(checker: StopChecker, tokens: Iterable[int]) -> tuple[str, object, object, int]:
    shown = ""
    for token in tokens:
        piece = checker.push(token)
        shown += piece.text
        if piece.finished is not None:
            return shown, piece.finished, piece.stopped_by, checker.tokens
    return shown, None, None, checker.tokens


def test_a_stop_string_across_tokens(letters: Tokenizer) -> None:
    tokens = letters.encode("one abcx two", add_special=False)
    checker = StopChecker(SamplingParams(stop="bcx"), letters)
    assert run(checker, tokens) == ("one a", "stop", "bcx", 6)


def test_text_that_was_held_is_shown_when_no_stop_comes(letters: Tokenizer) -> None:
    checker = StopChecker(SamplingParams(stop="ab!"), letters)
    pieces = [checker.push(token).text for token in letters.encode("xab?", add_special=False)]
    assert pieces == ["x", "", "ab?"]
    checker = StopChecker(SamplingParams(stop="ab!"), letters)
    assert [checker.push(t).text for t in letters.encode("xab", add_special=False)] == ["x", ""]
    assert checker.finish() == "ab"


def test_the_model_ends_the_text(letters: Tokenizer) -> None:
    tokens = [*letters.encode("ab", add_special=False), END, 5]
    assert run(StopChecker(SamplingParams(), letters), tokens) == ("ab", "stop", END, 1)
    held = StopChecker(SamplingParams(stop="abc"), letters)
    assert run(held, tokens) == ("ab", "stop", END, 1)
    ignoring = StopChecker(SamplingParams(ignore_eos=True, max_tokens=3), letters)
    assert run(ignoring, tokens)[1:] == ("length", None, 3)


def test_stop_tokens_end_the_text_and_are_not_shown(letters: Tokenizer) -> None:
    x, y = letters.encode("p", add_special=False) + letters.encode("q", add_special=False)
    checker = StopChecker(SamplingParams(stop_token_ids=[y], ignore_eos=True), letters)
    assert run(checker, [x, x, y, x]) == ("pp", "stop", y, 2)


@pytest.mark.parametrize(("most", "shown"), [(1, "p"), (3, "ppp")])
def test_max_tokens(letters: Tokenizer, most: int, shown: str) -> None:
    token = letters.encode("p", add_special=False)
    checker = StopChecker(SamplingParams(max_tokens=most, stop="pq"), letters)
    assert run(checker, token * 5) == (shown, "length", None, most)


def test_an_unfinished_character_is_shown_at_the_end_only(letters: Tokenizer) -> None:
    lead = next(byte for byte in range(256) if letters.token_bytes(byte) == b"\xc3")
    checker = StopChecker(SamplingParams(max_tokens=2), letters)
    assert checker.push(lead).text == ""
    assert checker.push(lead).text == "\ufffd\ufffd"


def test_a_stop_string_that_the_last_character_completes_is_not_shown(letters: Tokenizer) -> None:
    lead = next(byte for byte in range(256) if letters.token_bytes(byte) == b"\xc3")
    p = letters.encode("p", add_special=False)[0]
    checker = StopChecker(SamplingParams(stop="p\ufffd", max_tokens=2), letters)
    assert [checker.push(p).text, checker.push(lead).text] == ["", ""]


def test_stop_strings_count_only_behind_min_tokens(letters: Tokenizer) -> None:
    tokens = letters.encode("p", add_special=False) * 5
    checker = StopChecker(SamplingParams(stop="pp", min_tokens=2), letters)
    assert run(checker, tokens) == ("pp", "stop", "pp", 4)


def test_the_time_limit(letters: Tokenizer) -> None:
    now = iter([10.0, 10.5, 10.9, 11.0, 99.0])
    checker = StopChecker(SamplingParams(time_limit=1.0), letters, clock=lambda: next(now))
    assert run(checker, letters.encode("p", add_special=False) * 9) == ("ppp", "time", None, 3)


def test_control_tokens_are_shown_on_request(letters: Tokenizer) -> None:
    assert StopChecker(SamplingParams(), letters).push(263).text == ""
    assert StopChecker(SamplingParams(), letters, skip_special=False).push(263).text == "<call>"
