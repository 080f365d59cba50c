"""The commands inside `ingot chat`: /help, /undo, /save and others."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ingot.cli.chat.conversation import Conversation
from ingot.cli.shared.output import notice
from ingot.errors import ConfigError

_COMMAND = re.compile(r"/(?P<name>[a-z]+)(?:\s+(?P<argument>.*))?", re.DOTALL | re.IGNORECASE)
_NO_SYSTEM = "-"


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """A command: its argument, its help text, and the function that runs it."""

    argument: str  # as /help shows it: "" for none, in brackets if optional
    help: str
    do: Callable[[Conversation, str], object]


def find_command(message: str) -> tuple[str, str] | None:
    """Name and argument of a command; None if the line is a message to the model."""
    found = _COMMAND.fullmatch(message.strip())
    return found and (found["name"].lower(), (found["argument"] or "").strip())


def run_command(conversation: Conversation, name: str, argument: str) -> bool:
    """Run a command; True if Ctrl-C stopped an answer that it asked for."""
    if name not in COMMANDS:
        raise ConfigError(f"unknown command /{name}; /help lists the commands")
    command = COMMANDS[name]
    if argument and not command.argument:
        raise ConfigError(f"/{name} takes no argument")
    if not argument and command.argument and not command.argument.startswith("["):
        raise ConfigError(f"/{name} needs an argument: /{name} {command.argument}")
    return command.do(conversation, argument) is True


def _help(conversation: Conversation, argument: str) -> None:  # noqa: ARG001
    width = max(len(f"{name} {command.argument}") for name, command in COMMANDS.items())
    for name, command in COMMANDS.items():
        notice(f"/{f'{name} {command.argument}':<{width}}  {command.help}")
    notice("End a line with a backslash to continue on the next line;")
    notice('put a message of several lines between two lines of """.')
    notice("Ctrl-C stops the answer, Ctrl-D exits.")


def _system(conversation: Conversation, argument: str) -> None:
    if argument:
        conversation.session.system = None if argument == _NO_SYSTEM else argument
    system = conversation.session.system
    notice("no system message" if system is None else f"system message: {system}")


def _save(conversation: Conversation, argument: str) -> None:
    path = Path(argument).expanduser()
    conversation.session.save(path)
    notice(f"saved to {path}")


def _load(conversation: Conversation, argument: str) -> None:
    conversation.load(Path(argument).expanduser())


def _exit(conversation: Conversation, argument: str) -> None:  # noqa: ARG001
    raise EOFError


COMMANDS: Final[Mapping[str, ChatCommand]] = {
    "help": ChatCommand("", "show this help", _help),
    "system": ChatCommand("[TEXT]", "show or set the system message; - removes it", _system),
    "reset": ChatCommand("", "start a new conversation", lambda chat, _: chat.reset()),
    "undo": ChatCommand("", "remove the last message and its answer", lambda chat, _: chat.undo()),
    "retry": ChatCommand("", "answer the last message again", lambda chat, _: chat.retry()),
    "save": ChatCommand("FILE", "save the conversation to a file", _save),
    "load": ChatCommand("FILE", "continue a conversation from a file", _load),
    "stats": ChatCommand("", "show token counts and speed", lambda chat, _: chat.show_stats()),
    "exit": ChatCommand("", "leave the chat", _exit),
}
