"""submit_all: many prompts, submitted as the engine's queue has room."""

from collections.abc import Callable, Generator, Iterable

from ingot.engine.engine import Prompt
from ingot.engine.request import Request
from ingot.errors import QueueFullError


def submit_all(
    prompts: Iterable[Prompt], submit: Callable[[Prompt], Request]
) -> Generator[Request]:
    """Yield requests in the order of their prompts, to be waited for; closing cancels them."""
    requests: list[Request] = []
    given = 0
    try:
        for prompt in prompts:
            while True:
                try:
                    requests.append(submit(prompt))
                    break
                except QueueFullError:  # wait for the oldest to finish
                    if given == len(requests):
                        raise
                    yield requests[given]
                    given += 1
        yield from requests[given:]
    finally:
        for request in requests:
            request.cancel()
