"""Prompts as llama-server's bodies have them: texts, tokens, and both in one list.

A list of numbers is one prompt, and so is a list of numbers and texts; a list of texts, or one
that holds lists, is several. In texts, the names of control tokens are these tokens.
"""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ingot.api import LLM
from ingot.server.body_limits import MOST_PROMPTS, MOST_TOKENS, Few, TokenId, Tokens
from ingot.server.errors import ApiError


class TextPrompt(BaseModel):
    """A text in an object, as clients write it that also know images."""

    model_config = ConfigDict(strict=True, extra="ignore")

    prompt_string: str
    multimodal_data: Few[str] | None = None


T = TypeVar("T")
_Listed = Annotated[list[T], Field(fail_fast=True, min_length=1, max_length=MOST_TOKENS)]
_Mixed = Tokens | _Listed[TokenId | str]
OnePrompt = str | TextPrompt | _Mixed
Prompts = str | TextPrompt | Tokens | _Listed[TokenId | str | TextPrompt | _Mixed]


def listed(given: Prompts) -> list[OnePrompt]:
    """All prompts that were given."""
    if not isinstance(given, list):
        return [given]
    numbers = any(isinstance(part, int) for part in given)
    others = any(isinstance(part, (list, TextPrompt)) for part in given)
    if numbers and others:
        raise ApiError(400, "a list of prompts holds no token ids beside them", param="prompt")
    if numbers:
        return [[part for part in given if isinstance(part, (int, str))]]
    prompts = [part for part in given if not isinstance(part, int)]
    if len(prompts) > MOST_PROMPTS:
        raise ApiError(400, f"{len(prompts)} prompts are more than {MOST_PROMPTS}", param="prompt")
    return prompts


def tokens_of(llm: LLM, prompt: OnePrompt) -> list[int]:
    """The tokens of one prompt; those that begin a text come before a text, not before tokens."""
    if isinstance(prompt, TextPrompt):
        if prompt.multimodal_data:
            raise ApiError(400, "multimodal_data: this server reads text", param="prompt")
        prompt = prompt.prompt_string
    parts = [prompt] if isinstance(prompt, str) else prompt
    tokens: list[int] = []
    for number, part in enumerate(parts):
        if isinstance(part, str):
            tokens += llm.tokenizer.encode(part, add_special=number == 0, parse_special=True)
        else:
            tokens.append(part)
    return tokens
