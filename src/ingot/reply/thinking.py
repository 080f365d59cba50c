"""A budget for the reasoning of one reply, in the style of its model."""

from ingot.reply.style import CHANNEL, END, MESSAGE, START, CallStyle, ReplyStyle
from ingot.sampling import ThinkingBudget
from ingot.tokenizer import Tokenizer

_ANALYSIS = f"{CHANNEL}analysis{MESSAGE}"
_NEXT = f"{END}{START}assistant"
_FINAL = f"{CHANNEL}final{MESSAGE}"


def thinking_budget(
    style: ReplyStyle,
    tokenizer: Tokenizer,
    tokens: int,
    *,
    begins_in_reasoning: bool = False,
    may_call: bool = False,
) -> ThinkingBudget | None:
    """What ends the reasoning after so many tokens; None for a model that has no marks for it.

    Where channels hold reasoning, the answer's one is opened, unless a call `may` come first.
    """
    if style.calls is CallStyle.HARMONY:
        opens, closes = _ANALYSIS, END
        forced = _NEXT if may_call else _NEXT + _FINAL
    elif style.thinking is not None:
        opens = "" if begins_in_reasoning else style.thinking.open
        forced = closes = style.thinking.close
    else:
        return None
    ids = tokenizer.encode(forced, add_special=False, parse_special=True)
    return ThinkingBudget(tokens, opens.encode(), closes.encode(), tuple(ids))
