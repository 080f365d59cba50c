"""The logprobs of a prompt's own tokens, for clients that score text."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ingot.api import LLM
from ingot.arrays import Ints
from ingot.engine.adapters import AdapterChoice
from ingot.errors import RequestCancelledError
from ingot.sampling import TokenLogprobs
from ingot.sampling.logprobs import row_logprobs
from ingot.server.threads import run_in_thread


async def prompt_logprobs(
    llm: LLM, prompts: Sequence[Ints], count: int, adapter: AdapterChoice | None = None
) -> list[list[TokenLogprobs]]:
    """For each prompt, the logprobs of its tokens from the second on, with `count` alternatives."""
    jobs = [_Scoring(tokens, count) for tokens in prompts]

    def run() -> list[list[TokenLogprobs]]:
        for job in jobs:
            if len(job.tokens) > 1:
                llm.engine.read_rows(job.tokens[:-1], job.take, adapter=adapter)
        return [job.found for job in jobs]

    try:
        return await run_in_thread(run)
    finally:
        for job in jobs:
            job.cancelled = True  # nobody waits any more: the thread ends with the next rows


class _Scoring:
    def __init__(self, tokens: Ints, count: int) -> None:
        self.tokens = tokens
        self.found: list[TokenLogprobs] = []
        self.cancelled = False
        self._count = count

    def take(self, start: int, rows: NDArray[np.float32]) -> None:
        """Take the logits of some tokens, in the thread that runs the model."""
        if self.cancelled:
            raise RequestCancelledError("nobody waits for the logprobs of the prompt")
        for row, token in zip(rows, self.tokens[start + 1 :], strict=False):
            self.found.append(row_logprobs(row, int(token), self._count))
