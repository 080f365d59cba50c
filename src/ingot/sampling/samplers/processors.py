"""Processors: functions of the caller that change the logits of the whole vocabulary.

Each is called with the tokens so far (read-only) and the logits, which it changes in place. After
a cut, the tokens that were removed have logits of -inf and stay removed.
"""

from collections.abc import Sequence

from ingot.errors import ProcessorError
from ingot.sampling.candidates import Candidates
from ingot.sampling.params import Processor
from ingot.sampling.sampler import Sampler


class Processors(Sampler):
    """Runs functions one after the other; an exception fails this request only."""

    cuts = False

    def __init__(self, functions: Sequence[Processor]) -> None:
        self._functions = tuple(functions)

    def apply(self, candidates: Candidates) -> None:
        row = candidates.whole_row()
        tokens = candidates.token_ids.view()
        tokens.flags.writeable = False
        for function in self._functions:
            try:
                function(tokens, row)
            except BaseException as error:  # KeyboardInterrupt would end all requests
                name = getattr(function, "__name__", type(function).__name__)
                raise ProcessorError(f"the logits processor {name} failed: {error!r}") from error
        if candidates.ids is not None:
            candidates.take(candidates.ids, row[candidates.ids])
