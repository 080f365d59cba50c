"""The commands inside `ingot chat`: lines that begin with a slash and a word."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ingot.cli.chat_talk import Talk
from ingot.cli.text import notice
from ingot.errors import ConfigError

_COMMAND = re.compile(r"/(?P<name>[a-z]+)(?:\s+(?P<argument>.*))?", re.DOTALL | re.IGNORECASE)
_NO_SYSTEM = "-"


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """What a command takes, what it is for, and what it does."""

    argument: str  # as help shows it: "" for none, in brackets if it may be left out
    help: str
    do: Callable[[Talk, str], object]


def find_command(message: str) -> tuple[str, str] | None:
    """The name and the argument of a command; None for a message to the model."""
    found = _COMMAND.fullmatch(message.strip())
    return found and (found["name"].lower(), (found["argument"] or "").strip())


def run_command(talk: Talk, name: str, argument: str) -> bool:
    """Do what a command says; whether Ctrl-C ended an answer that it asked for."""
    if name not in COMMANDS:
        raise ConfigError(f"there is no /{name}; /help lists the commands")
    command = COMMANDS[name]
    if argument and not command.argument:
        raise ConfigError(f"/{name} takes nothing after it")
    if not argument and command.argument and not command.argument.startswith("["):
        raise ConfigError(f"/{name} needs a {command.argument} after it")
    return command.do(talk, argument) is True


def _help(talk: Talk, argument: str) -> None:  # noqa: ARG001
    width = max(len(f"{name} {command.argument}") for name, command in COMMANDS.items())
    for name, command in COMMANDS.items():
        notice(f"/{f'{name} {command.argument}':<{width}}  {command.help}")
    notice("A line that ends in a backslash goes on in the next one;")
    notice('lines between two lines of """ are one message.')
    notice("Ctrl-C stops the answer, Ctrl-D leaves.")


def _system(talk: Talk, argument: str) -> None:
    if argument:
        talk.session.system = None if argument == _NO_SYSTEM else argument
    system = talk.session.system
    notice("there is no system message" if system is None else f"system message: {system}")


def _save(talk: Talk, argument: str) -> None:
    path = Path(argument).expanduser()
    talk.session.save(path)
    notice(f"saved as {path}")


def _exit(talk: Talk, argument: str) -> None:  # noqa: ARG001
    raise EOFError


COMMANDS: Final[Mapping[str, ChatCommand]] = {
    "help": ChatCommand("", "show this", _help),
    "system": ChatCommand("[TEXT]", "show or set the system message; - for none", _system),
    "reset": ChatCommand("", "forget the conversation", lambda talk, _: talk.reset()),
    "undo": ChatCommand("", "take the last message and its answer back", lambda t, _: t.undo()),
    "retry": ChatCommand("", "have the last message answered again", lambda t, _: t.retry()),
    "save": ChatCommand("FILE", "write the conversation to a file", _save),
    "load": ChatCommand(
        "FILE", "go on with one from a file", lambda t, path: t.load(Path(path).expanduser())
    ),
    "stats": ChatCommand("", "show tokens and speed", lambda talk, _: talk.show_stats()),
    "exit": ChatCommand("", "leave", _exit),
}
