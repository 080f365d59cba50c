"""Colours and bold text: not with NO_COLOR; and on a dumb terminal no escape sequence at all."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from command_runs import INGOT, PATIENCE
from terminals import CTRL_D, ENTER, AtTerminal, shown_to_end

from tiny_llama import write_tiny_llama

LONG = "word " * 300
GREEDY = ("--temperature", 0, "-t", 1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose context has room for a prompt that takes a while."""
    return write_tiny_llama(
        tmp_path_factory.mktemp("styles") / "tiny.gguf", keys={"llama.context_length": 4096}
    )


def chat(model: Path, **environment: str) -> str:
    """All that is shown in a chat of one message, with a bar before its answer."""
    with AtTerminal("chat", *GREEDY, "-m", model, "-n", 2, **environment) as terminal:
        shown = terminal.wait_for("> ")
        terminal.press(LONG.encode() + ENTER)
        shown += terminal.wait_for("\n") + "\n" + terminal.wait_for("> ")
        terminal.press(CTRL_D)
        status, rest = terminal.leave()
    assert status == 0
    return shown + rest


def test_the_prompt_of_a_chat_is_bold(model: Path) -> None:
    shown = chat(model)
    assert "\x1b[1m" in shown
    assert "reading the prompt [" in shown


def test_nothing_is_bold_with_no_color(model: Path) -> None:
    shown = chat(model, NO_COLOR="1")
    assert "reading the prompt [" in shown
    assert "m" not in {sequence.lstrip("[?0123456789;")[:1] for sequence in shown.split("\x1b")[1:]}
    assert "\x1b[1m" in chat(model, NO_COLOR="")  # which means nothing


def test_a_chat_on_a_dumb_terminal_is_plain_text(model: Path) -> None:
    shown = chat(model, TERM="dumb")
    assert "\x1b" not in shown
    assert "reading the prompt" not in shown
    assert "\r" not in shown.replace("\r\n", "")


def on_terminal(*arguments: object, **environment: str) -> str:
    """What a command shows on stdout and stderr, which are a terminal."""
    leader, follower = pty.openpty()
    command = [str(INGOT), *map(str, arguments)]
    variables = os.environ | environment
    with subprocess.Popen(command, stdout=follower, stderr=follower, env=variables) as process:
        os.close(follower)
        shown = shown_to_end(leader)
        assert process.wait(PATIENCE) == 0
    return shown


@pytest.mark.parametrize("plain", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "--tensors", "MODEL"),
        ("tokenize", "-m", "MODEL", "hello <|im_start|>"),
        ("run", *GREEDY, "-m", "MODEL", "-n", 2, LONG),
        ("bench", "-m", "MODEL", "-p", 4, "-n", 0, "-r", 1),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:2])),
)
def test_commands_have_no_escape_sequences(
    model: Path, arguments: tuple[object, ...], plain: dict[str, str]
) -> None:
    shown = on_terminal(*(model if part == "MODEL" else part for part in arguments), **plain)
    assert shown
    assert "\x1b" not in shown


def test_a_pull_has_no_escape_sequences() -> None:
    """Its bar is drawn with carriage returns, and not at all on a dumb terminal."""
    code = (
        "from ingot.cli.shared.find_model import download_bar\n"
        "with download_bar() as progress:\n"
        "    progress('waiting', 0, 0)\n"
        "    progress('downloading', 2 << 20, 4 << 20)\n"
    )

    def shown(**environment: str) -> str:
        leader, follower = pty.openpty()
        command = [sys.executable, "-c", code]
        subprocess.run(command, stderr=follower, env=os.environ | environment, check=True)
        os.close(follower)
        return shown_to_end(leader)

    assert "waiting\r\n\rdownloading [####" in shown()
    assert "\x1b" not in shown()
    assert shown(TERM="dumb") == "waiting\r\ndownloading (4.0 MiB)\r\n"
