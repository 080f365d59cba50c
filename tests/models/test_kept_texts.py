"""What the engine keeps of a text, on a tiny model of every architecture: a prefix that is found
again, a fork, an undone turn, a text that is saved and restored in a new engine.

Each must write what an engine writes that shares nothing, to the last bit of its log-probabilities.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingot import LLM, Completion
from models.test_models import CONTEXT, DECODERS
from models.tiny_models import Fixture

WRITTEN: dict[str, Any] = {"max_tokens": 8, "temperature": 0, "ignore_eos": True, "logprobs": 1}


@pytest.fixture(scope="module", params=DECODERS)
def fixture(request: pytest.FixtureRequest) -> Fixture:
    return Fixture.load(request.param)


@pytest.fixture(scope="module")
def path(fixture: Fixture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixture.write(tmp_path_factory.mktemp("kept") / "model.gguf")


@pytest.fixture(scope="module")
def alone(path: Path) -> Iterator[LLM]:
    """An engine in which no text finds another."""
    with LLM(path, threads=1, context=CONTEXT, reuse="none") as opened:
        yield opened


def written(done: Completion) -> list[tuple[int, float]]:
    """The tokens of a text and their log-probabilities."""
    return [(each.token, each.logprob) for each in done.logprobs]


def test_texts(fixture: Fixture, path: Path, alone: LLM, tmp_path: Path) -> None:
    ids = fixture.token_ids[:70]
    other = [*ids[:66], 1, 2, 3]
    expected = written(alone.generate(ids, **WRITTEN))
    with LLM(path, threads=1, context=CONTEXT) as llm:
        assert written(llm.generate(ids, **WRITTEN)) == expected
        again = llm.generate(ids, **WRITTEN)
        assert again.timings.reused_tokens >= 32
        assert written(again) == expected

        request = llm.stream(ids, **WRITTEN)
        next(request)
        fork = request.fork()
        assert written(request.result()) == expected
        assert fork.result().token_ids == tuple(token for token, _ in expected)

        undone = llm.generate(other, **WRITTEN)
        assert undone.timings.reused_tokens >= 32
        assert written(undone) == written(alone.generate(other, **WRITTEN))
        llm.engine.save(ids, tmp_path / "saved")
    with LLM(path, threads=1, context=CONTEXT) as llm:
        llm.engine.restore(tmp_path / "saved")
        restored = llm.generate(ids, **WRITTEN)
        assert restored.timings.reused_tokens >= 32
        assert written(restored) == expected
