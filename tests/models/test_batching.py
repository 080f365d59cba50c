"""The same answer whatever else the engine does, on both real models.

A text alone, among 31 others, on one thread or two, its prompt in one piece or in chunks, found
in the cache or not, in a cache that is too small, guessed ahead or not: not one token changes.
"""

from pathlib import Path
from typing import Any

import pytest

from ingot import LLM
from ingot.sampling import TokenLogprobs

TOPICS = ("the sea", "old maps", "bread", "a bridge", "winter", "the moon", "birds", "trains")
SYSTEM = "You are a careful assistant. Answer in plain words, and say so if you do not know. " * 3
WAYS: dict[str, dict[str, Any]] = {
    "two threads, all at once": {"threads": 2, "max_running": 64, "chunk_tokens": 512},
    "chunks, nothing reused": {"threads": 1, "chunk_tokens": 24, "reuse": "none"},
    "a small cache, guesses": {"context": 256, "cache_tokens": 1024, "speculation": "ngram"},
}
CHECKED = (0, 3, 8, 13, 18, 21, 26, 31)
Told = list[tuple[tuple[int, ...], tuple[TokenLogprobs, ...]]]


def asked(number: int) -> tuple[str, dict[str, Any]]:
    """Thirty-two different requests, half of them greedy, half drawn from a seed."""
    topic = TOPICS[number % len(TOPICS)]
    text = f"{SYSTEM}Write {number // 8 + 1} sentences about {topic}. {topic.capitalize()} "
    draws = {"seed": number, "temperature": 0.9} if number % 2 else {"temperature": 0}
    return text * (1 + number % 2), {"max_tokens": 6 + number % 5, "n_probs": 1, **draws}


def alone(path: Path) -> Told:
    found = []
    for number in CHECKED:
        with LLM(path, threads=1, reuse="none", context=512) as llm:
            prompt, fields = asked(number)
            done = llm.generate(prompt, **fields)
            found.append((done.token_ids, done.logprobs))
    return found


@pytest.fixture(scope="module", params=["smollm2_path", "gemma_path"])
def model(request: pytest.FixtureRequest) -> tuple[Path, Told]:
    """A model, and what it says to some of the requests when nobody else is there."""
    path: Path = request.getfixturevalue(request.param)
    return path, alone(path)


@pytest.mark.parametrize("way", WAYS)
def test_among_31_others(model: tuple[Path, Told], way: str) -> None:
    path, expected = model
    with LLM(path, **{"context": 512, **WAYS[way]}) as llm:
        requests = []
        for number in range(32):
            prompt, fields = asked(number)
            requests.append(llm.stream(prompt, **fields))
        done = [request.result() for request in requests]
        found = [(done[number].token_ids, done[number].logprobs) for number in CHECKED]
        assert found == expected
        assert (llm.stats.reused_tokens > 0) == ("nothing reused" not in way)
