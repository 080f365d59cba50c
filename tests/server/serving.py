"""Starts `ingot serve` as a process, as its users do."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PATIENCE = 300  # seconds, on a machine that does other things


@dataclass
class Served:
    """A server that runs."""

    process: subprocess.Popen[str]
    url: str
    log: list[str] = field(default_factory=list)

    def terminate(self) -> None:
        """Ask it to stop."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for its end: the exit status."""
        return self.process.wait(seconds)

    def logged(self, text: str) -> str:
        """Wait for a line of the log that holds a text."""
        end = time.monotonic() + PATIENCE
        more = True
        while more:
            more = time.monotonic() < end and self.process.poll() is None
            time.sleep(0.02)  # before a look that may be the last
            for line in list(self.log):
                if text in line:
                    return line
        raise AssertionError(f"{text!r} is not in the log:\n" + "\n".join(self.log))


@contextmanager
def serving(*arguments: object, env: dict[str, str] | None = None) -> Iterator[Served]:
    """A server with `-m` and the arguments, on a free port, until the end of the context."""
    process = start(*arguments, env=env)
    served = Served(process, "")
    reader = threading.Thread(target=_read, args=(process, served.log), daemon=True)
    reader.start()
    try:
        served.url = served.logged("serving ").rsplit(" ", 1)[1]
        yield served
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()
        assert process.stderr is not None
        process.stderr.close()


def start(*arguments: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a server."""
    model, *others = [str(argument) for argument in arguments]
    command = [sys.executable, "-c", "from ingot.cli import main; main()", "serve", "-m", model]
    if "--port" not in others:
        others += ["--port", "0"]
    others += os.environ.get("INGOT_TEST_SERVE", "").split()  # `make test-ray`
    return subprocess.Popen(
        [*command, *others], stderr=subprocess.PIPE, text=True, env=os.environ | (env or {})
    )


def _read(process: subprocess.Popen[str], log: list[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        log.append(line.rstrip("\n"))
