"""SamplerChain: the samplers of one request, in order, and the tokens of its text.

In: rows of logits, and the tokens that were accepted. Out: the candidates, with one token sampled.
order.py has the order. Draws depend only on the seed and on the number of tokens generated: not on
other requests, nor on how often `apply` was called.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np

from ingot.arrays import Ints, Logits
from ingot.sampling.candidates import Candidates
from ingot.sampling.fused_tail import FusedTail
from ingot.sampling.sampler import Sampler

_SEED_BITS = 53  # a JSON number holds it exactly


class SamplerChain:
    """Samplers with a seed and a text; not thread-safe."""

    def __init__(
        self,
        samplers: Sequence[Sampler],
        *,
        seed: int | None = None,
        prompt: Sequence[int] | Ints = (),
    ) -> None:
        self.samplers = tuple(samplers)
        # Most samplers ignore accepted tokens: those are not called for each of them.
        self._followers = [each for each in samplers if type(each).accept is not Sampler.accept]
        self.seed = _any_seed() if seed is None else seed
        self._tokens = np.empty(max(64, 2 * len(prompt)), np.int32)
        self._tokens[: len(prompt)] = prompt
        self._prompt_length = self._length = len(prompt)
        # If the chain ends in the usual way and no cut comes before, one native call samples all
        # requests of a step (token_sampler.py).
        cutting = (place for place, sampler in enumerate(self.samplers) if sampler.cuts)
        first = next(cutting, len(self.samplers))
        self.tail = FusedTail.of(self.samplers[first:])
        self.editors = self.samplers[:first]

    @property
    def token_ids(self) -> Ints:
        """The text so far: the prompt and the tokens accepted."""
        return self._tokens[: self._length]

    @property
    def generated(self) -> int:
        """How many tokens were accepted after the prompt."""
        return self._length - self._prompt_length

    @property
    def is_complete(self) -> bool:
        """Whether a grammar allows no further token."""
        return any(sampler.is_complete for sampler in self.samplers)

    def forced_tokens(self) -> list[int]:
        """The tokens that a grammar forces next; they need no sampling."""
        found = (sampler.forced_tokens() for sampler in self.samplers)
        return next((tokens for tokens in found if tokens), [])

    def prepare(self) -> None:
        """Prepare the next `apply`, in any thread, while the model computes."""
        for sampler in self.samplers:
            sampler.prepare()

    def begin(self, row: Logits) -> Candidates:
        """All tokens of a row as candidates."""
        return Candidates(row, self.token_ids, seed=self.seed, generated=self.generated)

    def apply(self, row: Logits) -> Candidates:
        """Run all samplers over a row, which they may change."""
        candidates = self.begin(row)
        for sampler in self.samplers:
            sampler.apply(candidates)
        return candidates

    def edit(self, row: Logits) -> None:
        """Run only the samplers before the first cut, which change the row."""
        if self.editors:
            candidates = self.begin(row)
            for sampler in self.editors:
                sampler.apply(candidates)

    def accept(self, token: int) -> None:
        """Add a token to the text."""
        if self._length == len(self._tokens):
            self._tokens = np.concatenate([self._tokens, np.empty_like(self._tokens)])
        self._tokens[self._length] = token
        self._length += 1
        for sampler in self._followers:
            sampler.accept(token)

    def accept_all(self, tokens: Iterable[int]) -> None:
        """Add several tokens, one after the other."""
        for token in tokens:
            self.accept(token)

    def reset(self) -> None:
        """Go back to the prompt."""
        self._length = self._prompt_length
        for sampler in self.samplers:
            sampler.reset()

    def clone(self, seed: int | None = None) -> Self:
        """Copy the samplers and the text, maybe with another seed."""
        copy = type(self)(
            [sampler.clone() for sampler in self.samplers],
            seed=self.seed if seed is None else seed,
            prompt=self.token_ids,
        )
        copy._prompt_length = self._prompt_length
        return copy


def _any_seed() -> int:
    return int.from_bytes(os.urandom(8)) >> (64 - _SEED_BITS)
