"""A text in chunks of equal length, as llama.cpp splits it for measurements.

A remainder is ignored. If the vocabulary adds BOS, BOS replaces the first token of each chunk.
"""

from collections.abc import Sequence

from ingot.errors import ConfigError
from ingot.tokenizer import Tokenizer


def split_chunks(
    ids: Sequence[int],
    tokenizer: Tokenizer,
    context: int,
    *,
    most: int | None = None,
    least: int = 1,
) -> list[list[int]]:
    """The first `most` chunks of a text; fewer than `least` raise `ConfigError`."""
    count = len(ids) // context
    if count < least:
        needed = f"a chunk has {context}"
        if least > 1:
            needed = f"{least} chunks of {context} need {least * context}"
        raise ConfigError(
            f"the text is too short: {len(ids)} tokens, but {needed}; use a longer text or a "
            "smaller --context"
        )
    bos = tokenizer.bos_id if tokenizer.adds_bos else None
    found = [list(ids[number * context :][:context]) for number in range(min(count, most or count))]
    for chunk in found:
        if bos is not None:
            chunk[0] = bos
    return found
