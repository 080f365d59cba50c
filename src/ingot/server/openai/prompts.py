"""Prompts as OpenAI's bodies have them: a text, its tokens, or several of either."""

from ingot.server.body_limits import Several, Tokens

Prompts = str | Tokens | Several[str] | Several[Tokens]


def listed(given: str | list[int] | list[str] | list[list[int]]) -> list[str | list[int]]:
    """All of them, as a list."""
    if isinstance(given, str):
        return [given]
    tokens = [entry for entry in given if isinstance(entry, int)]
    return [tokens] if tokens else [entry for entry in given if not isinstance(entry, int)]
