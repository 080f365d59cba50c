"""`ingot imatrix`, and `ingot quantize` to a size, which measures on a text, too."""

from pathlib import Path

import numpy as np
import pytest
from command_runs import Run

from ingot.gguf import GgufLoader, GgufWriter
from ingot.gguf.copying import copy_keys
from ingot.quant import decode
from ingot.quantize.imatrix import read_imatrix
from tiny_llama import write_tiny_llama

FEW = ("-c", 64, "-t", 1)  # tokens of a chunk, threads


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("The quick brown fox jumps over the lazy dog. " * 5)
    return path


def test_a_file_that_quantize_takes(run: Run, model: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "imatrix.gguf"
    done = run("imatrix", text, "-m", model, "-o", out, "-c", 64)
    assert (done.status, done.out) == (0, f"{out}\n"), done.err
    found = read_imatrix(out)
    assert (found.datasets, found.chunks) == (("text.txt",), 3)
    with GgufLoader(model) as loader:
        matrices = {n for n, t in loader.tensors.items() if n[:4] == "blk." and len(t.shape) == 2}
    assert found.means.keys() == matrices
    assert all(np.isfinite(means).all() for means in found.means.values())
    quantized = tmp_path / "q.gguf"
    options = ("--imatrix", out, "--allow-requantize")
    assert run("quantize", model, quantized, "iq4_nl", *options).status == 0
    with GgufLoader(quantized) as loader:
        assert loader.metadata.string("quantize.imatrix.file") == "imatrix.gguf"
        assert loader.metadata.integer("quantize.imatrix.chunks_count") == 3


def test_fewer_chunks(run: Run, model: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "imatrix.gguf"
    assert run("imatrix", text, "-m", model, "-o", out, "-c", 64, "--chunks", 2).status == 0
    assert read_imatrix(out).chunks == 2


def test_a_short_text(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("short")
    done = run("imatrix", tmp_path / "text.txt", "-m", model, "-o", tmp_path / "imatrix.gguf")
    assert (done.status, "the text is too short" in done.err) == (2, True)
    assert not (tmp_path / "imatrix.gguf").exists()


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    """A model of floats in which the feed-forward of layer 1 comes to nothing."""
    source = write_tiny_llama(tmp_path / "source.gguf")
    writer = GgufWriter(tmp_path / "uneven.gguf")
    with GgufLoader(source) as loader:
        copy_keys(loader, writer)
        for name, tensor in loader.tensors.items():
            values = decode(tensor.data, tensor.type, tensor.shape)
            writer.add_tensor(name, 0 * values if name == "blk.1.ffn_down.weight" else values)
    return writer.write()[0]


def test_bits_go_where_they_matter(run: Run, uneven: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "q.gguf"
    done = run("quantize", uneven, out, "--target-bpw", 6.5, "--text", text, *FEW)
    assert (done.status, done.out) == (0, f"{out}\n"), done.err
    with GgufLoader(out) as loader:
        types = {name: tensor.type.name for name, tensor in loader.tensors.items()}
        weights = sum(np.prod(tensor.shape) for tensor in loader.tensors.values())
        bits = 8 * sum(tensor.nbytes for tensor in loader.tensors.values()) / weights
        assert loader.metadata.string("quantize.imatrix.dataset") == "text.txt"
    assert types["blk.1.ffn_up.weight"] == types["blk.1.ffn_gate.weight"] == "Q4_1"
    assert {types[f"blk.0.{name}.weight"] for name in ("attn_v", "ffn_down")} & {"Q8_0", "F32"}
    assert 5.5 < bits <= 6.5


def test_a_size_is_kept(run: Run, uneven: Path, text: Path, tmp_path: Path) -> None:
    imatrix, out = tmp_path / "imatrix.gguf", tmp_path / "q.gguf"
    assert run("imatrix", text, "-m", uneven, "-o", imatrix, "-c", 32).status == 0
    options = ("--target-size", "120K", "--text", text, *FEW, "--imatrix", imatrix)
    assert run("quantize", uneven, out, *options).status == 0
    assert 100_000 < out.stat().st_size <= 120_000
    shown = run("quantize", uneven, out, *options, "--dry-run")
    assert (shown.status, "bits per weight" in shown.out) == (0, True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "say one of TYPE, --target-size and --target-bpw"),
        (["q8_0", "--target-bpw", "4"], "say one of TYPE"),
        (["--target-bpw", "4"], "need a text to measure on"),
        (["q8_0", "--text", "TEXT"], "--text and --context go with"),
        (["--target-bpw", "4", "--text", "TEXT", "--tensor-type", "x=q8_0"], "go with a TYPE"),
        (["--target-size", "4Q", "--text", "TEXT"], "it must be a size like"),
        (["--target-size", "1K", "--text", "TEXT", "-c", "32"], "choose a larger size"),
        (["--target-bpw", "1.5", "--text", "TEXT", "-c", "32"], "choose a larger size"),
    ],
)
def test_targets_that_cannot_be(
    options: list[str], reason: str, run: Run, uneven: Path, text: Path, tmp_path: Path
) -> None:
    given = [text if option == "TEXT" else option for option in options]
    done = run("quantize", uneven, tmp_path / "q.gguf", *given)
    assert (done.status, reason in done.err) == (2, True), done.err
    assert not (tmp_path / "q.gguf").exists()
