"""`ingot quantize`, `split`, `merge` and `edit` on small files."""

import re
from itertools import groupby
from pathlib import Path
from struct import pack

import numpy as np
import pytest
from command_runs import Run

from checkpoints import write_llama
from ingot.gguf import GgmlType, GgufLoader, GgufWriter, ValueType


@pytest.fixture
def model(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    writer = GgufWriter(tmp_path / "model.gguf")
    writer.add("general.architecture", "llama")
    writer.add("general.name", "old")
    writer.add("llama.context_length", 64)
    writer.add("llama.block_count", 5)
    writer.add("llama.rope.freq_base", 10000.0)
    writer.add("tokenizer.ggml.add_bos_token", True)
    writer.add("tokenizer.ggml.scores", [0.0, 1.0], ValueType.FLOAT32)
    for layer in range(5):
        values = rng.standard_normal((8, 256)).astype("f2")
        writer.add_tensor(f"blk.{layer}.attn_q.weight", values)
    return writer.write()[0]


def test_quantize(run: Run, model: Path, tmp_path: Path) -> None:
    shown = run("quantize", model, tmp_path / "q.gguf", "q8_0", "--dry-run")
    assert shown.status == 0
    assert "8.50 bits per weight" in shown.out
    assert re.search(r"^all +5 +10\.6 KiB$", shown.out, re.MULTILINE), shown.out
    assert not (tmp_path / "q.gguf").exists()
    done = run("quantize", model, tmp_path / "q.gguf", "q8_0", "--tensor-type", "blk.0=q4_k")
    assert (done.status, done.out) == (0, f"{tmp_path / 'q.gguf'}\n"), done.err
    with GgufLoader(tmp_path / "q.gguf") as found:
        assert found.tensors["blk.0.attn_q.weight"].type is GgmlType.Q4_K
        assert found.tensors["blk.1.attn_q.weight"].type is GgmlType.Q8_0


def test_quantize_keeps_the_split_if_asked(run: Run, model: Path, tmp_path: Path) -> None:
    assert run("split", model, tmp_path / "parts.gguf", "--max-tensors", 2).status == 0
    first = tmp_path / "parts-00001-of-00003.gguf"
    done = run("quantize", first, tmp_path / "kept.gguf", "q8_0", "--keep-split")
    assert (done.status, done.out) == (0, f"{tmp_path / 'kept-00001-of-00003.gguf'}\n"), done.err
    with GgufLoader(tmp_path / "kept-00001-of-00003.gguf") as kept:
        parts = groupby(kept.tensors.values(), lambda tensor: tensor.path)
        assert [len(list(held)) for _, held in parts] == [2, 2, 1]
    assert run("quantize", first, tmp_path / "one.gguf", "q8_0").out == f"{tmp_path / 'one.gguf'}\n"


def test_quantize_with_importance(run: Run, model: Path, tmp_path: Path) -> None:
    name = b"blk.2.attn_q.weight"
    counts = np.random.default_rng(2).lognormal(0, 2, 256).astype("<f4").tobytes()
    head = pack("<ii", 1, len(name)) + name + pack("<ii", 1, 256)
    (tmp_path / "imatrix.dat").write_bytes(head + counts)
    files = []
    for out, options in (("a.gguf", []), ("b.gguf", ["--imatrix", tmp_path / "imatrix.dat"])):
        done = run("quantize", model, tmp_path / out, "q4_k_s", *options)
        assert done.status == 0, done.err
        files.append(GgufLoader(tmp_path / out))
    differ = [key for key in files[0].tensors if not same(*(f.tensors[key].data for f in files))]
    assert differ == [name.decode()]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b)


def test_a_checkpoint_is_quantized_without_a_file_between(run: Run, tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny")
    assert run("quantize", folder, tmp_path / "a.gguf", "q8_0").status == 0
    assert run("convert", folder, "-o", tmp_path / "b.gguf", "--type", "q8_0").status == 0
    with GgufLoader(tmp_path / "a.gguf") as a, GgufLoader(tmp_path / "b.gguf") as b:
        assert a.tensors.keys() == b.tensors.keys()
        assert all(same(a.tensors[key].data, b.tensors[key].data) for key in a.tensors)


@pytest.mark.parametrize("command", ["quantize", "merge", "split"])
def test_a_model_is_not_written_over_itself(command: str, run: Run, model: Path) -> None:
    before = model.read_bytes()
    more = {"quantize": ["q8_0"], "merge": [], "split": ["--max-size", "1G"]}[command]
    done = run(command, model, model, *more)
    assert done.status == 2
    assert "is the model itself" in done.err
    assert model.read_bytes() == before


def test_unknown_types(run: Run, model: Path, tmp_path: Path) -> None:
    done = run("quantize", model, tmp_path / "q.gguf", "q4_k_x")
    assert (done.status, done.err.splitlines()[0][:21]) == (2, "error: unknown type '")


def test_split_and_merge(run: Run, model: Path, tmp_path: Path) -> None:
    done = run("split", model, tmp_path / "parts.gguf", "--max-tensors", 2)
    assert done.out == f"{tmp_path / 'parts-00001-of-00003.gguf'}\n"
    with GgufLoader(tmp_path / "parts-00002-of-00003.gguf") as parts:
        assert len(parts.files) == 3
        assert len(parts.tensors) == 5
    done = run("merge", tmp_path / "parts-00003-of-00003.gguf", tmp_path / "whole.gguf")
    assert done.status == 0, done.err
    assert (tmp_path / "whole.gguf").read_bytes() == model.read_bytes()


def test_split_by_size(run: Run, model: Path, tmp_path: Path) -> None:
    assert run("split", model, tmp_path / "parts.gguf", "--max-size", "8.5K").status == 0
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("parts-*"))]
    assert len(sizes) == 3
    assert all(size < 9000 for size in sizes)


@pytest.mark.parametrize("size", ["", "2T", "-1", "0", "G"])
def test_sizes_that_are_none(size: str, run: Run, model: Path, tmp_path: Path) -> None:
    done = run("split", model, tmp_path / "parts.gguf", f"--max-size={size}")
    assert (done.status, "it must be a size like" in done.err) == (2, True)


def test_edit(run: Run, model: Path) -> None:
    with GgufLoader(model) as before:
        weights = before.tensors["blk.3.attn_q.weight"].data.copy()
    changes = {
        "general.name": "7",
        "llama.context_length": "128",
        "llama.rope.freq_base": "500000",
        "tokenizer.ggml.add_bos_token": "false",
        "tokenizer.ggml.scores": "[2, 3.5]",
        "new.number": "1.5",
        "new.text": "a=b",
    }
    sets = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    done = run("edit", model, *sets, "--remove", "llama.block_count")
    assert (done.status, done.out) == (0, f"{model}\n"), done.err
    with GgufLoader(model) as found:
        metadata = found.metadata
        assert metadata["general.name"] == "7"
        assert metadata.entry("llama.context_length").type is ValueType.UINT32
        assert metadata["llama.context_length"] == 128
        assert metadata.entry("llama.rope.freq_base").type is ValueType.FLOAT32
        assert metadata["tokenizer.ggml.add_bos_token"] is False
        np.testing.assert_array_equal(metadata["tokenizer.ggml.scores"], [2, 3.5])
        assert (metadata["new.number"], metadata["new.text"]) == (1.5, "a=b")
        assert "llama.block_count" not in metadata
        np.testing.assert_array_equal(found.tensors["blk.3.attn_q.weight"].data, weights)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "nothing to do"),
        (["--set", "x"], "is not KEY=VALUE"),
        (["--set", "llama.context_length=abc"], "cannot be 'abc'"),
        (["--set", "llama.context_length=-1"], "cannot be '-1'"),
        (["--set", "llama.context_length=[1]"], "needs one UINT32 value"),
        (["--set", "tokenizer.ggml.scores=1"], "needs a JSON list"),
        (["--set", "general.alignment=64"], "cannot be changed"),
        (["--remove", "no.such.key"], "has no key no.such.key"),
    ],
)
def test_edits_that_cannot_be(arguments: list[str], reason: str, run: Run, model: Path) -> None:
    before = model.read_bytes()
    done = run("edit", model, *arguments)
    assert done.status == 2
    assert reason in done.err
    assert model.read_bytes() == before
