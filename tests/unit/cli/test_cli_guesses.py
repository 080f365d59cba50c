"""Guesses of next tokens: which the commands make by default, and those by layers of the model."""

import json
import re
from pathlib import Path

import pytest
from command_runs import Run

from models.test_mtp import with_mtp
from models.tiny_models import Fixture

FLAGS = ("--temp", 0, "--ignore-eos", "-t", 1, "-n", 40)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return with_mtp("glm4moe").write(tmp_path / "mtp.gguf")


def test_a_text_is_the_same_with_guesses_of_the_model(run: Run, model: Path) -> None:
    asked = ("run", "--raw", *FLAGS, "-m", model, "t1t2t3")
    plain = run(*asked)
    assert plain.status == 0
    assert plain.out
    guessed = run(*asked, "--speculation", "mtp")
    assert guessed.out == plain.out
    assert re.search(r"t/s; \d+ of \d+ guesses right", guessed.err)
    assert json.loads(run(*asked, "--speculation", "mtp", "--json").out)["guessed_tokens"] > 0


def test_a_conversation_is_the_same_with_guesses_of_the_model(run: Run, model: Path) -> None:
    asked = ("chat", *FLAGS, "-m", model)
    plain, guessed = (
        run(*asked, "--speculation", way, stdin="t1t2\nt3\n") for way in ("off", "mtp")
    )
    assert plain.status == guessed.status == 0
    assert plain.out.count("\n") >= 2
    assert guessed.out == plain.out


@pytest.mark.parametrize("command", [("run", "hi"), ("chat",)])
def test_a_model_without_such_layers_is_refused(
    command: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    model = Fixture.load("glm4moe").write(tmp_path / "model.gguf")
    ran = run(*command, "-m", model, "--speculation", "mtp", stdin="hi\n")
    assert (ran.status, ran.out) == (2, "")
    assert "has no layers for multi-token prediction" in ran.err


@pytest.mark.parametrize(
    ("command", "default"), [("chat", "auto"), ("serve", "auto"), ("run", "off")]
)
def test_what_is_guessed_by_default(command: str, default: str, run: Run) -> None:
    help = " ".join(re.sub(r"[│╭╮╰╯─]", " ", run(command, "--help").out).split())
    assert re.search(rf"--speculation [^\[]*\[default: {default}\]", help), help
