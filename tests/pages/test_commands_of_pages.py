"""Every `ingot ...` on a page, in blocks and in the text, is a command line that Ingot takes.

Nothing runs: names of commands and options, their values and the number of arguments are parsed.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from blocks import PAGES, ROOT, blocks

from ingot.cli import app

GROUP: Any = typer.main.get_command(app)
USAGE_ERROR = typer.BadParameter.__mro__[1]  # what a wrong option, value or argument raises
PROGRAMS = (["ingot"], ["uvx", "ingot-llm"])


def commands_of(line: str) -> Iterator[list[str]]:
    """The arguments of each `ingot` in a line of a shell."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    current: list[str] = []
    for word in [*words, ";"]:
        if word and set(word) <= set("();<>|&"):
            while current and re.fullmatch(r"\w+=.*", current[0]):  # the environment
                del current[0]
            for program in PROGRAMS:
                if current[: len(program)] == program:
                    yield current[len(program) :]
            current = []
        else:
            current.append(word)


def in_blocks(page: Path) -> Iterator[list[str]]:
    """Those of blocks of shell lines, which are complete."""
    for block in blocks(page):
        if not block.language:
            for line in block.text.replace("\\\n", " ").splitlines():
                if re.match(r"(\w+=\S+ )*(ingot|uvx) ", line):
                    yield from commands_of(line)


def in_text(page: Path) -> Iterator[list[str]]:
    """Those in backquotes, which may leave arguments out."""
    without_blocks = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.M | re.S)
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", without_blocks):
        if re.match(r"(\w+=\S+ )*ingot ", code):
            yield from commands_of(code)


def fault(arguments: list[str], *, complete: bool) -> str | None:
    """Why Ingot would refuse a command line."""
    name, *rest = arguments
    if name.startswith("-"):
        return None if name in ("--version", "--help", "-h") else f"no option {name}"
    command = GROUP.get_command(None, name)
    if command is None:
        return f"no command {name}"
    try:
        command.make_context(name, rest)
    except USAGE_ERROR as error:
        said: str = error.format_message()
        left_out = said.startswith("Missing ") or said.endswith(" requires an argument.")
        return said if complete or not left_out else None
    return None


FOUND = [
    pytest.param(arguments, complete, id=f"{page.relative_to(ROOT)}: {' '.join(arguments)[:90]}")
    for page in PAGES
    for read, complete in ((in_blocks, True), (in_text, False))
    for arguments in read(page)
    if arguments
]


@pytest.mark.parametrize(("arguments", "complete"), FOUND)
def test_a_command_line_of_a_page_is_taken(arguments: list[str], complete: bool) -> None:
    assert fault(arguments, complete=complete) is None


def test_many_command_lines_are_found() -> None:
    """Or the search has lost its way."""
    assert len(FOUND) > 100
    with_commands = {page.name for page in PAGES if [*in_blocks(page)]}
    assert with_commands >= {"README.md", "models.md", "server.md", "ray.md", "gpu.md", "engine.md"}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('ingot run "a b" --seed 1  # why', [["run", "a b", "--seed", "1"]]),
        ("INGOT_API_KEY=secret ingot serve", [["serve"]]),
        ("ingot list | grep a && ingot ps > file", [["list"], ["ps"]]),
        ("uvx ingot-llm run hi", [["run", "hi"]]),
        ("pip install ingot-llm", []),
    ],
)
def test_lines_of_a_shell(line: str, found: list[list[str]]) -> None:
    assert [*commands_of(line)] == found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["walk", "a"], "no command walk"),
        (["run", "--temprature", "1", "hi"], "No such option"),
        (["run", "--seed", "many", "hi"], "not a valid int"),
        (["split", "a.gguf"], "Missing argument"),
        (["ps", "one", "two", "three"], "unexpected extra argument"),
    ],
)
def test_a_command_line_that_would_be_refused(arguments: list[str], said: str) -> None:
    assert said in (fault(arguments, complete=True) or "")


def test_text_may_leave_arguments_out() -> None:
    assert fault(["split"], complete=False) is None
    assert fault(["split", "--max-size"], complete=False) is None
    assert fault(["split", "--max-sice", "2G"], complete=False) is not None
