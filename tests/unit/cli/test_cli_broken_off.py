"""`ingot quantize` and `convert` that are broken off: the old file stays, and nothing else."""

import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from command_runs import INGOT, PATIENCE

from checkpoints import llama_tensors, write_llama, write_safetensors
from ingot.gguf import GgufWriter

WEIGHTS = 1 << 25  # the search takes a second or more


def start(*command: object) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(list(map(str, command)), stdout=pipe, stderr=pipe, text=True)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    writer = GgufWriter(tmp_path / "model.gguf")
    writer.add("general.architecture", "llama")
    writer.add("llama.block_count", 1)
    values = np.random.default_rng(1).standard_normal(1 << 16).astype("f2")
    writer.add_tensor("blk.0.attn_q.weight", np.resize(values, (WEIGHTS >> 12, 1 << 12)))
    return writer.write()[0]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The tiny Llama with a feed-forward that is not tiny."""
    folder = write_llama(tmp_path / "checkpoint", intermediate_size=1 << 15)
    tensors = llama_tensors()
    for name, values in tensors.items():
        if ".mlp." in name:
            shape = (96, 1 << 15) if "down" in name else (1 << 15, 96)
            tensors[name] = np.resize(values, shape).astype("f2")
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


@pytest.mark.parametrize("command", ["quantize", "convert"])
def test_ctrl_c(command: str, model: Path, checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "out.gguf"
    out.write_bytes(b"old")
    arguments: dict[str, tuple[object, ...]] = {
        "quantize": (model, out, "q2_k"),
        "convert": (checkpoint, "-o", out, "--type", "q2_k"),
    }
    with start(INGOT, command, *arguments[command]) as process:
        wait_for_a_draft(process, folder)
        process.send_signal(signal.SIGINT)
        printed, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, printed) == (130, "")
    assert "Traceback" not in err
    assert [path.name for path in folder.iterdir()] == ["out.gguf"]
    assert out.read_bytes() == b"old"


def wait_for_a_draft(process: subprocess.Popen[str], folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(list(folder.iterdir())) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_disk_that_becomes_full(model: Path, tmp_path: Path) -> None:
    """The system refuses a write in the middle, as it does if others fill the disk."""
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "out.gguf"
    out.write_bytes(b"old")

    limited = ("bash", "-c", 'ulimit -f 1024; exec "$@"', "-", INGOT, "quantize")
    with start(*limited, model, out, "q8_0") as process:
        printed, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, printed) == (2, "")
    assert err.startswith(f"error: {out} cannot be written")
    assert err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["out.gguf"]
    assert out.read_bytes() == b"old"
