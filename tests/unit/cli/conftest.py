"""Small GGUF files, an empty cache, and the command line in this process and in its own."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command_runs import INGOT, PATIENCE, Ran, Run
from typer.testing import CliRunner

from ingot.cli import app
from ingot.config import config
from ingot.gguf import GgmlType, GgufWriter


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and a terminal that knows colours; gives the cache's folder of models."""
    folder = tmp_path / "cache" / "models"
    folder.mkdir(parents=True)
    monkeypatch.setenv("INGOT_CACHE", str(folder.parent))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    config.cache_clear()
    yield folder
    config.cache_clear()


@pytest.fixture
def run() -> Run:
    """Run a command in this process."""

    def command(*arguments: object, stdin: str | bytes | None = None) -> Ran:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return command


@pytest.fixture
def run_process() -> Run:
    """Run a command as a program of its own."""

    def command(*arguments: object, stdin: str | None = None) -> Ran:
        done = subprocess.run(
            [str(INGOT), *map(str, arguments)],
            **({"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return command


def add_tiny_model(writer: GgufWriter) -> None:
    """Two layers with weights of three types, a vocabulary and a chat template."""
    writer.add("general.architecture", "llama")
    writer.add("general.name", "Tiny [red]\x1b[31m")
    writer.add("general.file_type", 7)
    writer.add("llama.block_count", 2)
    writer.add("llama.context_length", 128)
    writer.add("llama.embedding_length", 64)
    writer.add("llama.feed_forward_length", 96)
    writer.add("llama.attention.head_count", 4)
    writer.add("llama.attention.head_count_kv", 2)
    writer.add("llama.rope.freq_base", float("inf"))
    writer.add("tokenizer.ggml.model", "gpt2")
    writer.add("tokenizer.ggml.pre", "default")
    writer.add("tokenizer.ggml.tokens", ["a", "b", "c"])
    writer.add("tokenizer.chat_template", "\n".join(f"line {number}" for number in range(40)))
    values = np.arange(-64, 64, dtype=np.float32).reshape(2, 64)
    writer.add_tensor("token_embd.weight", values.astype(np.float16))
    for layer in range(2):
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", np.ones(64, np.float32))
        blocks = np.zeros((2, 34), np.uint8)
        writer.add_tensor(f"blk.{layer}.attn_q.weight", blocks, GgmlType.Q8_0)
    writer.add_tensor("numbers", np.array([-3, 0, 2**62, 5], np.int64))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The tiny model in one file."""
    writer = GgufWriter(tmp_path / "tiny.gguf")
    add_tiny_model(writer)
    return writer.write()[0]


@pytest.fixture
def split(tmp_path: Path) -> list[Path]:
    """The tiny model in three files."""
    writer = GgufWriter(tmp_path / "split.gguf", max_tensors=2)
    add_tiny_model(writer)
    return writer.write()
