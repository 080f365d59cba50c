"""Programs that end while an engine is at work: no abort, no wait without end, not a word."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from holding import PATIENCE

_STREAMS = """
import sys
from ingot import LLM
llm = LLM(sys.argv[1], threads=2)
requests = [llm.stream("abc", max_tokens=200, ignore_eos=True) for _ in range(3)]
next(requests[0])
"""

_NATIVE = """
import sys, threading
from ingot import LLM
llm = LLM(sys.argv[1], threads=1)
began = threading.Event()

def encode():
    while True:
        began.set()
        llm.tokenizer.encode("abc" * 300_000)

for _ in range(2):
    threading.Thread(target=encode, daemon=True).start()
began.wait()
"""

_HANGS = """
import sys
from ingot import LLM

def hang(tokens, logits):
    print("hangs", flush=True)
    while True:
        pass

LLM(sys.argv[1], threads=1).generate("abc", processors=[hang])
"""


def start(script: str, model: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", script, str(model)], stdout=pipe, stderr=pipe, text=True
    )


def test_while_texts_are_written(tiny: Path) -> None:
    process = start(_STREAMS, tiny)
    assert process.communicate(timeout=PATIENCE) == ("", "")
    assert process.returncode == 0


def test_while_other_threads_are_in_native_code(tiny: Path) -> None:
    process = start(_NATIVE, tiny)
    assert process.communicate(timeout=PATIENCE) == ("", "")
    assert process.returncode == 0


def test_ctrl_c_ends_a_program_whose_step_hangs(tiny: Path) -> None:
    with start(_HANGS, tiny) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hangs\n"
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None:
            assert time.monotonic() < deadline
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        err = process.communicate()[1]
    assert process.returncode in (130, -signal.SIGINT)
    assert "terminate" not in err
