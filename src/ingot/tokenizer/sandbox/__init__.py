"""A sandbox for untrusted Jinja templates, with limits on time, memory and output.

In: the source of a template. Out: a `CompiledTemplate`, which renders variables under `Limits`,
with `Placeholders` for the control tokens in their texts. It does not know chats or tokenizers.
"""

from ingot.tokenizer.sandbox.compiled_template import CompiledTemplate as CompiledTemplate
from ingot.tokenizer.sandbox.limits import Limits as Limits
from ingot.tokenizer.sandbox.placeholders import ControlTokens as ControlTokens
from ingot.tokenizer.sandbox.placeholders import Placeholders as Placeholders

__all__ = ["CompiledTemplate", "ControlTokens", "Limits", "Placeholders"]
