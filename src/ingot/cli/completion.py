"""`ingot completion`: the script that lets a shell complete commands, options and models."""

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # re-exported

from ingot.cli.shared.completion import COMPLETE_VARIABLE, PROGRAM


class Shell(StrEnum):
    """Shells that have a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def command(
    shell: Annotated[Shell, typer.Argument(help="The shell to write a script for.")],
) -> None:
    """Print a completion script; run it when a shell starts.

    bash, in ~/.bashrc: eval "$(ingot completion bash)". zsh, in ~/.zshrc after compinit:
    eval "$(ingot completion zsh)". fish: ingot completion fish >
    ~/.config/fish/completions/ingot.fish
    """
    print(get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell))
