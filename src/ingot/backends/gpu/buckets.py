"""Buckets: the sizes of steps that are compiled and captured; a batch is filled up to the next one.

Fixed sizes make the set of kernels finite and known when a model is opened.
"""

from collections.abc import Sequence
from dataclasses import dataclass

_DECODED = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_PROMPT = (16, 32, 64, 96, 128, 192, 256, 384, 512, 640, 768, 896, 1024)
_LONG_STEP = 512  # tokens between two buckets of longer prompts
_WANTED = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_TILE_TOKENS = 16  # a prompt chunk has one sequence for so many tokens, at most
_FEW_TILES = 64


def decode_buckets(most: int) -> list[int]:
    """Sequences of a decode step; none if there are no such steps."""
    return _up_to(_DECODED, most) if most else []


def prompt_buckets(most: int) -> list[int]:
    """Tokens of a prompt chunk."""
    return _up_to([*_PROMPT, *range(_PROMPT[-1] + _LONG_STEP, most, _LONG_STEP)], most)


def wanted_buckets(most: int) -> list[int]:
    """Rows that come out of a prompt chunk."""
    return _up_to(_WANTED, most)


def _up_to(sizes: Sequence[int], most: int) -> list[int]:
    return [*(size for size in sizes if size < most), most]


@dataclass(frozen=True, slots=True)
class PromptBucket:
    """A prompt chunk of up to so many tokens, in so many tiles of queries."""

    tokens: int
    tiles: int

    @classmethod
    def of(cls, tokens: int, sequences: int, query_tile: int) -> "PromptBucket":
        """The bucket of so many tokens, of at most so many sequences."""
        usual = max(tokens // _TILE_TOKENS, min(tokens, _FEW_TILES))
        return cls(tokens, tokens // query_tile + min(sequences, usual))


def next_bucket(buckets: Sequence[int], size: int) -> int | None:
    """The smallest that has room."""
    return next((bucket for bucket in buckets if bucket >= size), None)
