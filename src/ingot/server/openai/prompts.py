"""Prompts as OpenAI's bodies have them: a text, its tokens, or several of either."""

from typing import Annotated

from pydantic import Field

from ingot.server.sampling_body import TokenId

_MOST = 2048
_Tokens = Annotated[list[TokenId], Field(min_length=1)]
Prompts = (
    str
    | _Tokens
    | Annotated[list[str], Field(min_length=1, max_length=_MOST)]
    | Annotated[list[_Tokens], Field(min_length=1, max_length=_MOST)]
)


def listed(given: str | list[int] | list[str] | list[list[int]]) -> list[str | list[int]]:
    """All of them, as a list."""
    if isinstance(given, str):
        return [given]
    tokens = [entry for entry in given if isinstance(entry, int)]
    return [tokens] if tokens else [entry for entry in given if not isinstance(entry, int)]
