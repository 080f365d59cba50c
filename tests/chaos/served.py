"""The server under test: a real `ingot serve`, which can be killed, limited, watched and restarted.

Comes in: a folder to work in. Goes out: the process, its port (the same in every life), its log
and what the kernel and the server say about it. It does not know which faults there are.
"""

import http.client
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.ports import quiet_port
from tiny_llama import write_tiny_llama

PATIENCE = 120  # seconds after which something has hung, on a machine that does other things
PARALLEL = 8  # texts written at once
CONTEXT = 1024  # tokens of a text
_USER = 61734  # nobody else's, so that its threads can be counted and limited
_DISK = 4 << 20  # bytes of the folder of saved slots, if it can be mounted

_COMMAND = "from ingot.cli import main; main()"
_LIMIT = """
import resource, sys
pid, which, value = map(int, sys.argv[1:])
soft, hard = resource.prlimit(pid, which)
resource.prlimit(pid, which, (value, hard))
print(soft)
"""


@dataclass(frozen=True)
class Usage:
    """What a process holds."""

    memory: int  # bytes that are not a file's
    descriptors: int
    threads: int


class ServedProcess:
    """A server with a tiny model of random weights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        (folder / "models").mkdir()
        self.model = write_tiny_llama(
            folder / "models" / "tiny.gguf", keys={"llama.context_length": CONTEXT}
        )
        self.model_bytes = self.model.read_bytes()
        self.slots = folder / "slots"
        self.slots.mkdir()
        self.clock = folder / "clock"
        self.skew(0)
        self.log = folder / "server.log"
        self.port = quiet_port()
        self.lives = 0
        self._unprivileged = _setpriv()
        self.disk_is_mounted = os.geteuid() == 0 and _mount(self.slots)
        if self._unprivileged:
            for path in (folder, self.model.parent, self.model, self.slots):
                os.chown(path, _USER, _USER)
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def is_root(self) -> bool:
        """Whether the server is exempt from the limit of threads."""
        return os.geteuid() == 0 and not self._unprivileged

    def start(self) -> None:
        """Begin a life, and wait until it answers."""
        self.lives += 1
        arguments = ["serve", "-m", self.model, "--port", self.port, "--parallel", PARALLEL]
        arguments += ["--threads", 1, "--slot-save-path", self.slots]
        arguments += ["--shutdown-grace", PATIENCE]
        environment = os.environ | {
            "PYTHONPATH": str(Path(__file__).parent / "clock"),
            "INGOT_CHAOS_CLOCK": str(self.clock),
            "RUST_BACKTRACE": "0",  # a panic that prints one needs memory, or waits for ever
            "HOME": str(self.folder),
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._unprivileged, sys.executable, "-c", _COMMAND, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
            )
        if not self.eventually(self.is_healthy):
            raise RuntimeError(f"the server did not start; {self.log} says more")

    def restart(self) -> None:
        """Wait for the end of a life, and begin the next."""
        self.process.wait(PATIENCE)
        self.start()

    def close(self) -> None:
        """End it, and give the disk back."""
        self.process.kill()
        self.process.wait()
        if self.disk_is_mounted:
            subprocess.run(["umount", "--lazy", self.slots], check=True)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    @property
    def is_dead(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def eventually(self, check: Any, seconds: float = PATIENCE) -> bool:
        """Wait until something is so; False if it never was, or the process has died."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.is_dead:
            with suppress(OSError, http.client.HTTPException, ValueError):
                if check():
                    return True
            time.sleep(0.05)
        return False

    def ask(self, method: str, path: str, body: Any = None, seconds: float = PATIENCE) -> Any:
        """One request: the status and the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        headers = {"Content-Type": "application/json", "Connection": "close"}
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def is_healthy(self) -> bool:
        """Whether /health says so."""
        status, _ = self.ask("GET", "/health")
        return bool(status == 200)

    def gauges(self) -> dict[str, float]:
        """The engine's gauges, and the number of busy slots."""
        _, text = self.ask("GET", "/metrics")
        found = re.findall(r"^(ingot_(?:running|waiting|blocks_held))\{[^}]*\} (\S+)$", text, re.M)
        _, slots = self.ask("GET", "/slots")
        busy = sum(slot["is_processing"] for slot in json.loads(slots))
        return {name: float(value) for name, value in found} | {"busy slots": busy}

    def usage(self) -> Usage:
        """What the process holds now, its children included."""
        pids = [self.process.pid, *_descendants(self.process.pid)]
        return Usage(
            memory=sum(_status(pid, "RssAnon") for pid in pids) << 10,
            descriptors=len(list(Path(f"/proc/{self.process.pid}/fd").iterdir())),
            threads=_status(self.process.pid, "Threads"),
        )

    def address_space(self) -> int:
        """Bytes of addresses that the process has mapped."""
        return _status(self.process.pid, "VmSize") << 10

    def limit(self, which: int, value: int) -> int:
        """Set a soft limit of the living process: what it was before.

        The user who sets it is the one of the process, as the kernel wants it.
        """
        command = [*self._unprivileged, sys.executable, "-c", _LIMIT]
        given = [str(number) for number in (self.process.pid, which, value)]
        return int(subprocess.run([*command, *given], check=True, capture_output=True).stdout)

    def skew(self, seconds: float) -> None:
        """Set its wall clock."""
        if not self.clock.exists():
            self.clock.write_bytes(bytes(8))
        with self.clock.open("r+b") as file:
            file.write(struct.pack("<d", seconds))


def _setpriv() -> list[str]:
    """What starts a program without root's privileges, if root starts it and this works here.

    It may read every file, because the interpreter may lie in root's own folder.
    """
    rights = "-all,+dac_override"
    user = [f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", "--no-new-privs"]
    command = ["setpriv", *user, f"--inh-caps={rights}", f"--ambient-caps={rights}"]
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return []
    check = subprocess.run([*command, sys.executable, "-c", ""], capture_output=True, check=False)
    return command if check.returncode == 0 else []


def _mount(folder: Path) -> bool:
    if shutil.which("mount") is None:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "ingot-chaos", folder]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _status(pid: int, name: str) -> int:
    """A number of a process's status file; 0 if it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)
        return int(found[1]) if found else 0
    return 0


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, task.read_text().split()):
                found += [child, *_descendants(child)]
    return found
