"""GrammarState: the state of a grammar in one text, which gives token masks and forced tokens.

The mask of a position is computed once, at the first call of `prepare` or `mask`. `prepare` may
run in another thread while the model computes, because llguidance releases the GIL.

llguidance limits the work of one mask to some tenths of a second. That would still be too much
for every token, because other requests wait meanwhile. So the time of a text is limited, too.
"""

import time
from threading import Lock
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from ingot.errors import GrammarError

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from ingot.sampling.grammar.compile_worker import CompiledGrammar

_SECONDS = 1.0  # CPU time of a text, in addition to that of its tokens
_SECONDS_PER_TOKEN = 0.02


class GrammarState:
    """The position of one text in a grammar."""

    def __init__(
        self, compiled: "CompiledGrammar", vocab_size: int, matcher: "LLMatcher | None" = None
    ) -> None:
        """`matcher`: a position other than the start."""
        self._compiled = compiled  # while somebody holds it, it is not compiled again
        self._matcher = matcher or compiled.matcher.deep_copy()
        self._words = np.empty((vocab_size + 31) // 32, np.uint32)
        self._ready = False
        self._left = _SECONDS
        self._lock = Lock()

    def prepare(self) -> None:
        """Compute the mask of this position if it is not known."""
        with self._lock:
            if not self._ready:
                begun = time.thread_time()
                self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
                self._check(begun)
                self._ready = True

    def mask(self) -> NDArray[np.uint32]:
        """One bit per token, lowest bit first: set if the token is allowed next."""
        self.prepare()
        return self._words

    def accept(self, token: int) -> None:
        """Advance by a token."""
        with self._lock:
            self._ready = False
            begun = time.thread_time()
            self._matcher.consume_token(token)
            self._left += _SECONDS_PER_TOKEN
            self._check(begun)

    def forced(self) -> list[int]:
        """The tokens that must come next, as far as they are known."""
        with self._lock:
            begun = time.thread_time()
            tokens = self._matcher.compute_ff_tokens()
            self._check(begun)
            return tokens

    @property
    def is_complete(self) -> bool:
        """Whether the text is complete and no token may follow."""
        return self._matcher.is_stopped()

    @property
    def may_end(self) -> bool:
        """Whether the text may end here."""
        return self._matcher.is_accepting()

    def reset(self) -> None:
        """Go back to the start."""
        with self._lock:
            self._ready = False
            self._left = _SECONDS
            begun = time.thread_time()
            self._matcher.reset()
            self._check(begun)

    def clone(self) -> Self:
        """Copy the position and the time that is left."""
        with self._lock:
            copy = self._matcher.deep_copy()
            cloned = type(self)(self._compiled, 32 * len(self._words), copy)
            cloned._left = self._left
            return cloned

    def _check(self, begun: float) -> None:
        if self._matcher.is_error():
            reason = self._matcher.get_error().partition("\n<state>")[0].strip()
            raise GrammarError(f"the grammar failed: {reason}")
        self._left -= time.thread_time() - begun
        if self._left < 0:
            raise GrammarError(
                f"the grammar takes more than {_SECONDS_PER_TOKEN * 1000:g} ms per token, and the "
                f"{_SECONDS:g} s that a text may take in addition are used up; simplify it"
            )
