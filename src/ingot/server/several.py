"""Several texts for one call: of each prompt so many, all submitted or none."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ingot.api import LLM
from ingot.engine import Request
from ingot.sampling import SamplingParams
from ingot.sampling.checks import LARGEST_SEED


def submit_each(
    llm: LLM,
    prompts: Sequence[NDArray[np.int32]],
    params: SamplingParams,
    count: int,
    *,
    reuse: bool = True,
) -> list[Request]:
    """Have each prompt continued `count` times, from a seed given on with the next ones."""
    requests: list[Request] = []
    try:
        for prompt in prompts:
            for number in range(count):
                seed = params.seed
                if seed is not None:
                    seed = (seed + number) % (LARGEST_SEED + 1)
                requests.append(
                    llm.stream(
                        prompt, replace(params, seed=seed), context_overflow="stop", reuse=reuse
                    )
                )
    except BaseException:
        for request in requests:
            request.cancel()
        raise
    return requests
