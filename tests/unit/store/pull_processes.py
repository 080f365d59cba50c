"""The command `ingot` in a process of its own."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

INGOT = Path(sys.executable).with_name("ingot")
PATIENCE = 300  # seconds, on a machine that does other things


def ingot(
    environment: Mapping[str, str], *arguments: str, cwd: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        [str(INGOT), *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def start(environment: Mapping[str, str], name: str, said: Path) -> "subprocess.Popen[str]":
    """Start a pull, which writes what it says to a file."""
    with said.open("w") as file:
        return subprocess.Popen(
            [str(INGOT), "pull", name],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
