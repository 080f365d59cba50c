"""The reasoning of a text ends when its budget is spent, and nothing else changes."""

import numpy as np
import pytest

from ingot.errors import SamplingError
from ingot.reply import CallStyle, Marks, ReplyStyle, thinking_budget
from ingot.sampling import Candidates, SamplingParams, ThinkingBudget
from ingot.sampling.samplers.reasoning_budget import ReasoningBudget

OPEN, CLOSE = b"<think>", b"</think>"
# Tokens of one letter, parts of tags, and tags that are single tokens.
TOKENS = [b"a", b"b", b" ", b"<th", b"ink>", b"</th", OPEN, CLOSE, b"</", b"<", b"/think>"]
A, B, SPACE, OPEN_1, MARK_2, CLOSE_1, WHOLE_OPEN, WHOLE_CLOSE, SLASH, LESS, REST = range(
    len(TOKENS)
)


def sampler(tokens: int, *, begun: bool = False, forced: tuple[int, ...] = (CLOSE_1, MARK_2)):
    budget = ThinkingBudget(tokens, b"" if begun else OPEN, CLOSE, forced)
    return ReasoningBudget(budget, TOKENS.__getitem__)


def allowed(thinking: ReasoningBudget) -> list[int]:
    candidates = Candidates(np.zeros(len(TOKENS), np.float32), np.empty(0, np.int32))
    thinking.apply(candidates)
    return np.flatnonzero(candidates.logits > -np.inf).tolist()


def written(thinking: ReasoningBudget, wanted: list[int]) -> list[int]:
    """What becomes of a text whose model wants these tokens, in order."""
    found, left = [], list(wanted)
    while left:
        choice = allowed(thinking)
        found.append(left.pop(0) if len(choice) > 1 else choice[0])
        thinking.accept(found[-1])
    return found


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([WHOLE_OPEN, A, A, A, A], [WHOLE_OPEN, A, A, A, CLOSE_1, MARK_2, A]),
        ([SPACE, OPEN_1, MARK_2, A, A, A, B], [SPACE, OPEN_1, MARK_2, A, A, A, CLOSE_1, MARK_2, B]),
        ([WHOLE_OPEN, A, WHOLE_CLOSE, *[B] * 9], [WHOLE_OPEN, A, WHOLE_CLOSE, *[B] * 9]),
        ([WHOLE_OPEN, A, CLOSE_1, MARK_2, *[B] * 9], [WHOLE_OPEN, A, CLOSE_1, MARK_2, *[B] * 9]),
        ([WHOLE_OPEN, A, B, CLOSE_1, MARK_2, A], [WHOLE_OPEN, A, B, CLOSE_1, MARK_2, A]),
        ([WHOLE_OPEN, A, B, LESS, REST, A], [WHOLE_OPEN, A, B, LESS, REST, A]),
        ([WHOLE_OPEN, A, B, SLASH, A, A], [WHOLE_OPEN, A, B, SLASH, A, CLOSE_1, MARK_2, A]),
        ([A, WHOLE_OPEN, *[A] * 9], [A, WHOLE_OPEN, *[A] * 9]),
        ([OPEN_1, A, WHOLE_OPEN, *[A] * 9], [OPEN_1, A, WHOLE_OPEN, *[A] * 9]),
    ],
    ids=[
        "spent",
        "opened in parts",
        "closed in time",
        "closed in parts",
        "just being closed",
        "closed after its first letter",
        "a mark that was none",
        "none at the beginning",
        "no mark",
    ],
)
def test_reasoning_of_three_tokens(wanted: list[int], expected: list[int]) -> None:
    thinking = sampler(3)
    assert written(thinking, wanted)[: len(expected)] == expected
    thinking.reset()
    assert written(thinking, wanted)[: len(expected)] == expected


def test_reasoning_that_the_prompt_has_begun() -> None:
    assert written(sampler(2, begun=True), [A, A, B, B]) == [A, A, CLOSE_1, MARK_2, B, B]


def test_a_copy_goes_on_by_itself() -> None:
    first = sampler(2, begun=True)
    first.accept(A)
    second = first.clone()
    second.accept(A)
    assert allowed(second) == [CLOSE_1]
    assert len(allowed(first)) == len(TOKENS)
    third = second.clone()
    second.accept(CLOSE_1)
    assert (allowed(second), allowed(third)) == ([MARK_2], [CLOSE_1])


class Spelled:
    """A tokenizer that notes what it is asked for."""

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        assert (add_special, parse_special) == (False, True)
        return list(text.encode())


@pytest.mark.parametrize(
    ("style", "options", "opens", "closes", "forced"),
    [
        (ReplyStyle(thinking=Marks("<t>", "</t>")), {}, "<t>", "</t>", "</t>"),
        (
            ReplyStyle(thinking=Marks("<t>", "</t>")),
            {"begins_in_reasoning": True},
            "",
            "</t>",
            "</t>",
        ),
        (
            ReplyStyle(CallStyle.HARMONY),
            {},
            "<|channel|>analysis<|message|>",
            "<|end|>",
            "<|end|><|start|>assistant<|channel|>final<|message|>",
        ),
        (
            ReplyStyle(CallStyle.HARMONY),
            {"may_call": True},
            "<|channel|>analysis<|message|>",
            "<|end|>",
            "<|end|><|start|>assistant",
        ),
    ],
)
def test_styles(
    style: ReplyStyle, options: dict[str, bool], opens: str, closes: str, forced: str
) -> None:
    found = thinking_budget(style, Spelled(), 7, **options)  # type: ignore[arg-type]
    assert found == ThinkingBudget(7, opens.encode(), closes.encode(), tuple(forced.encode()))


def test_models_without_reasoning_have_no_budget() -> None:
    assert thinking_budget(ReplyStyle(), Spelled(), 7) is None  # type: ignore[arg-type]


def test_what_is_no_budget() -> None:
    with pytest.raises(SamplingError, match="thinking is 5; it must be a ThinkingBudget or None"):
        SamplingParams(thinking=5)  # type: ignore[arg-type]
