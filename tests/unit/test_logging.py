"""`logging.getLogger("ingot")`: what a program can see of models and requests."""

import logging
from pathlib import Path

import pytest

from ingot import LLM
from ingot.errors import UnknownParameterError
from tiny_llama import write_tiny_llama


def test_models_and_requests_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    with caplog.at_level(logging.DEBUG, "ingot"), LLM(path, threads=1, weights="map") as llm:
        llm.generate("abc", max_tokens=2, ignore_eos=True)
    opened, request, closed = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert opened[0] == closed[0] == "INFO"
    assert f"opened {path}: context 256 of 256, threads 1" in opened[1]
    assert closed[1] == f"closed {path}"
    prompt = "4 prompt tokens, 0 of them reused, 2 generated"
    assert request == ("DEBUG", f"request ended (length): {prompt}")


def test_a_misspelled_parameter_has_a_suggestion(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    with pytest.raises(UnknownParameterError, match="did you mean 'context'"):
        LLM(path, contxt=5)
    with LLM(path, threads=1) as llm:
        for wrong, right in (
            ("temprature", "temperature"),
            ("max_token", "max_tokens"),
            ("context_overflw", "context_overflow"),
        ):
            with pytest.raises(UnknownParameterError, match=f"did you mean '{right}'"):
                llm.generate("a", **{wrong: 1})
        with pytest.raises(UnknownParameterError, match="did you mean 'top_p'"):
            llm.chat("a", topp=1)
