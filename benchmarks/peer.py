"""llama.cpp for comparison: a separate process that keeps its model loaded.

    with Peer("path/to/python") as peer:
        peer.open(model, threads=2, context=1024)
        seconds = peer.prompt(512)

The interpreter needs llama-cpp-python or ik-llama-cpp-python; its build decides the instruction
set.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

_WORKER = Path(__file__).with_name("llama_cpp_worker.py")
HOW_TO_BUILD = """\
  python -m venv peer
  CMAKE_ARGS="-DGGML_NATIVE=ON" peer/bin/pip install --no-cache-dir \\
    --no-binary llama-cpp-python llama-cpp-python==0.3.36 numpy
(AVX2 only: CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON
-DGGML_BMI2=ON". On a CPU with AMX use clang: gcc 12 miscompiles llama.cpp's AMX set-up.)
For a GPU: CMAKE_ARGS="-DGGML_CUDA=ON".
ik_llama.cpp: CC=clang-19 CXX=clang++-19 CMAKE_ARGS="-DGGML_NATIVE=ON" peer/bin/pip install
  --no-binary ik-llama-cpp-python ik-llama-cpp-python==0.1.5 numpy"""


_FIND = """
from importlib.util import find_spec
print(any(map(find_spec, ("llama_cpp", "ik_llama_cpp"))))
"""


def interpreter(path: str) -> str:
    """A type of `argparse`: a Python that can run a peer."""
    try:
        found = subprocess.run([path, "-c", _FIND], capture_output=True, text=True, check=False)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path!r} cannot be run: {error.strerror}") from None
    if (said := found.stdout.strip()) not in {"True", "False"}:
        raise argparse.ArgumentTypeError(
            f"{path!r} is not a Python interpreter. A peer is timed in turn with Ingot, with its "
            "model loaded all the time, so it is an interpreter with llama-cpp-python or "
            "ik-llama-cpp-python, not a llama-bench"
        )
    if said == "False":
        raise argparse.ArgumentTypeError(
            f"{path!r} has neither llama-cpp-python nor ik-llama-cpp-python:\n{HOW_TO_BUILD}"
        )
    return path


def named_interpreter(text: str) -> tuple[str, str]:
    """A type of `argparse`: the name and the interpreter of NAME=PYTHON."""
    name, separator, python = text.partition("=")
    if not separator or not name or not python:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PYTHON")
    return name, interpreter(python)


class Peer:
    """A running llama.cpp."""

    def __init__(
        self, python: str = sys.executable, *, repack: bool = False, gpu_layers: int = 0
    ) -> None:
        """`repack`: ik_llama.cpp interleaves the rows of weights when it loads them.

        `gpu_layers`: how many run on a GPU; -1: all.
        """
        self._repack, self._gpu_layers = repack, gpu_layers
        self._process = subprocess.Popen(
            [python, str(_WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def open(self, model: Path, *, threads: int, context: int, sequences: int = 1) -> float:
        """Load a model; seconds it took."""
        return self._ask(
            do="open",
            model=str(model),
            threads=threads,
            context=context,
            sequences=sequences,
            repack=self._repack,
            gpu_layers=self._gpu_layers,
        )

    def prompt(self, tokens: int) -> float:
        """Seconds a prompt takes on an empty context."""
        return self._ask(do="prompt", tokens=tokens)

    def generate(self, tokens: int, depth: int = 0, sequences: int = 1) -> float:
        """Seconds that so many steps take after `depth` tokens."""
        return self._ask(do="generate", tokens=tokens, depth=depth, sequences=sequences)

    def serve(self, prompt: int, tokens: int, sequences: int) -> float:
        """Seconds for a prompt of each sequence and then tokens of all of them together."""
        return self._ask(do="serve", prompt=prompt, tokens=tokens, sequences=sequences)

    def logits(self, ids: list[int], to: Path, *, one_by_one: bool = False) -> int:
        """Write logits of every position as raw float32; the size of a row."""
        return int(self._ask(do="logits", ids=ids, to=str(to), one_by_one=one_by_one))

    def _ask(self, **command: Any) -> float:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            sys.exit(f"llama.cpp stopped (is it installed for this interpreter?):\n{HOW_TO_BUILD}")
        return float(json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()
