"""Runs templates from strangers: bounded in time, memory and output, and shut in.

A template's source comes in; a `Program` goes out, which turns variables into text under
`Limits` and keeps texts in their `Disguise`. Nothing in here knows chats or tokenizers.
"""

from ingot.tokenizer.sandbox.disguise import ControlTokens as ControlTokens
from ingot.tokenizer.sandbox.disguise import Disguise as Disguise
from ingot.tokenizer.sandbox.limits import Limits as Limits
from ingot.tokenizer.sandbox.program import Program as Program

__all__ = ["ControlTokens", "Disguise", "Limits", "Program"]
