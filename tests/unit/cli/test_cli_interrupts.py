"""Ctrl-C more than once, whatever is being done when the second one comes: quiet, status 130."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from command_runs import INGOT, PATIENCE

from tiny_llama import write_tiny_llama

# A step of many layers takes some milliseconds of native code.
ENDLESS = ("-t", 2, "-n", 100_000, "-c", 150_000, "--ignore-eos")
PAUSES = (0.0, 0.001, 0.01, 0.05)


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(
        tmp_path_factory.mktemp("deep") / "deep.gguf",
        layers=200,
        keys={"llama.context_length": 200_000},
    )


def start(*command: object, stdin: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen([str(word) for word in command], stdin=stdin, stdout=pipe, stderr=pipe)


def start_run(model: Path) -> subprocess.Popen[bytes]:
    """An endless text; a pipe as stdin would be read to its end first."""
    return start(INGOT, "run", *ENDLESS, "-m", model, "hi", stdin=subprocess.DEVNULL)


def interrupt(process: subprocess.Popen[bytes], *pauses: float) -> tuple[int, str]:
    """Wait for its first output, press Ctrl-C, and again after each pause: status and stderr."""
    assert process.stdout is not None
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    for pause in pauses:
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=PATIENCE)[1]
    return process.returncode, err.decode()


@pytest.mark.parametrize("pause", PAUSES)
def test_twice_while_a_text_is_written(deep: Path, pause: float) -> None:
    status, err = interrupt(start_run(deep), pause)
    assert status == 130
    assert err == "" or (err.startswith("load ") and err.count("\n") == 1)


def test_three_times_at_any_time(deep: Path) -> None:
    random = Random(16)
    for _ in range(3):
        process = start_run(deep)
        status, err = interrupt(process, random.uniform(0, 0.03), random.uniform(0, 0.03))
        assert status == 130
        assert "\n" not in err.rstrip("\n")
        assert "Traceback" not in err


@pytest.mark.parametrize("command", ["bench", "perplexity", "chat", "serve"])
def test_twice_in_other_commands(deep: Path, tmp_path: Path, command: str) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one two three " * 500)
    arguments = {
        "bench": ("-n", "4000", "-r", "100"),
        "perplexity": (text,),
        "chat": ENDLESS,
        "serve": ("-c", "256", "--port", "0"),
    }[command]
    with start(INGOT, command, *arguments, "-m", deep) as process:
        wait_until_mapped(process, deep)
        time.sleep(Random(command).uniform(0, 0.5))
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=PATIENCE)[1].decode()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "terminate" not in err


def wait_until_mapped(process: subprocess.Popen[bytes], model: Path) -> None:
    """Wait until a program opens the model."""
    deadline = time.monotonic() + PATIENCE
    while str(model) not in Path(f"/proc/{process.pid}/maps").read_text():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)


_THREADS = """
import sys, threading
from ingot import LLM
llm = LLM(sys.argv[1], threads=2, context=150_000)

def read():
    for piece in llm.stream("abc", max_tokens=100_000, ignore_eos=True):
        print("x", end="", flush=True)

readers = [threading.Thread(target=read, daemon=True) for _ in range(3)]
for reader in readers:
    reader.start()
for reader in readers:
    reader.join()
"""


@pytest.mark.parametrize("pause", PAUSES[::3])
def test_twice_in_a_script_whose_threads_read_texts(deep: Path, pause: float) -> None:
    status, err = interrupt(start(sys.executable, "-c", _THREADS, deep), pause)
    assert status in (130, -signal.SIGINT)
    assert "KeyboardInterrupt" in err  # as in any script
    assert "terminate" not in err
    assert "nanobind" not in err
