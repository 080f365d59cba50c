"""thinking_budget: a limit on the reasoning of one reply, in the style of its model."""

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
    """A budget that ends the reasoning after `tokens`; None if the model has no tags for it.

    If reasoning has a channel (harmony), it also opens the channel of the answer, unless the model
    `may_call` tools first.
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
