"""vLLM's `truncate_prompt_tokens`: how many tokens of a prompt are kept, and which.

A prompt that is continued keeps its last tokens, a text that is embedded or ranked its first.
"""

from typing import Annotated, Literal

from pydantic import Field

from ingot.api import LLM
from ingot.server.errors import ApiError

PromptTokens = Literal[-1] | Annotated[int, Field(ge=1)]  # -1: what the context holds


def kept_tokens(asked: int | None, context: int, *, generated: int | None = None) -> int | None:
    """How many tokens of a prompt are kept; None: all.

    -1 asks for as many as the context holds, together with those that are `generated`.
    """
    if asked is not None and asked > context:
        raise ApiError(
            400,
            f"truncate_prompt_tokens is {asked}; the context has {context} tokens",
            param="truncate_prompt_tokens",
        )
    return asked if asked != -1 else max(context - (generated or 0), 1)


def first_tokens(llm: LLM, prompt: str | list[int], most: int | None) -> list[int]:
    """The first tokens of a prompt. Those that the model's file adds to a text are kept."""
    if not isinstance(prompt, str):
        return prompt[:most]
    ids = llm.tokenizer.encode(prompt)
    if most is None or len(ids) <= most:
        return ids
    after = len(llm.tokenizer.encode("")) - llm.tokenizer.adds_bos  # EOS, SEP
    return ids[: max(most - after, 0)] + ids[len(ids) - min(after, most) :]
