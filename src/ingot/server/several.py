"""Several texts for one call: of each prompt so many, all submitted or none."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingot.api import LLM
from ingot.engine import Request
from ingot.sampling import SamplingParams
from ingot.sampling.checks import LARGEST_SEED


@dataclass(frozen=True, slots=True)
class Texts:
    """Prompts, each to be continued `count` times."""

    prompts: Sequence[NDArray[np.int32]]
    params: SamplingParams
    count: int = 1
    reuse: bool = True

    def submit(self, llm: LLM) -> list[Request]:
        """Have them written, from a seed given on with the next ones."""
        requests: list[Request] = []
        try:
            for prompt in self.prompts:
                for number in range(self.count):
                    seed = self.params.seed
                    if seed is not None:
                        seed = (seed + number) % (LARGEST_SEED + 1)
                    requests.append(
                        llm.stream(
                            prompt,
                            replace(self.params, seed=seed),
                            context_overflow="stop",
                            reuse=self.reuse,
                        )
                    )
        except BaseException:
            for request in requests:
                request.cancel()
            raise
        return requests
