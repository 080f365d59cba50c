"""A checkpoint runs like a file: in Python, on the command line, and served."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from checkpoints import llama_tensors, write_llama, write_safetensors
from ingot import LLM, store
from ingot.config import config
from ingot.convert import locate_quantized, open_model
from ingot.convert.conversion import plan
from ingot.errors import FileWriteError, ModelError, QuantError, StoreError
from ingot.models import build_graph
from ingot.store import resolve
from models.tiny_models import Fixture
from run_batches import Runner

INGOT = Path(sys.executable).with_name("ingot")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "tiny-llama", eos_token_id=60)


def test_texts_are_those_of_the_file(folder: Path, tmp_path: Path) -> None:
    plan(folder).write(tmp_path / "model.gguf")
    texts = []
    for path in (folder, tmp_path / "model.gguf"):
        with LLM(path, context=96, threads=1) as llm:
            done = llm.generate("ABC", max_tokens=20, temperature=0)
            texts.append((done.text, llm.tokenizer.encode("ABCA")))
    assert texts[0] == texts[1]
    assert texts[0][0]


def test_what_needs_no_change_is_mapped(folder: Path) -> None:
    with open_model(folder) as loader:
        stored = folder / "model.safetensors"
        data = loader.tensors["blk.2.ffn_down.weight"].data
        assert data.base is not None
        assert data.tobytes() in stored.read_bytes()
        assert loader.tensors["blk.2.attn_q.weight"].data.flags.owndata  # its rows are reordered


@pytest.mark.parametrize("ending", ["", ":q8_0"])
def test_the_command_line_takes_a_folder(folder: Path, cache: Path, ending: str) -> None:
    done = subprocess.run(
        [
            INGOT,
            "run",
            "-m",
            f"{folder}{ending}",
            "-n",
            "4",
            "--temperature",
            "0",
            "-t",
            "1",
            "ABC",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert cache.exists() == bool(ending)
    shown = subprocess.run(
        [INGOT, "inspect", folder], capture_output=True, text=True, timeout=120, check=False
    )
    assert "architecture  llama" in shown.stdout
    assert "KiB, GGUF version 3" in shown.stdout  # as large as the file would be
    assert "4.0 KiB, GGUF" not in shown.stdout  # and not as the folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache that is empty."""
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    config.cache_clear()
    yield tmp_path / "cache"
    config.cache_clear()


def test_a_checkpoint_runs_quantized(folder: Path, cache: Path) -> None:
    """Written once, kept in the cache, listed; written again when the checkpoint changes."""
    name = f"{folder}:q8_0"
    with LLM(name, context=96, threads=1) as llm:
        assert llm.generate("ABC", max_tokens=20, temperature=0).text
        path = llm.path
        types = {tensor.type.name for tensor in llm.engine.model.file.tensors.values()}
    assert types == {"Q8_0", "F32"}
    assert path.parent == cache / "models"
    assert [model.path for model in store.list_models() if model.source == "ingot"] == [path]
    seen: list[tuple[str, int, int]] = []

    def progress(stage: str, done: int, total: int) -> None:
        seen.append((stage, done, total))

    written = path.stat().st_mtime_ns
    assert locate_quantized(name, progress) == path
    assert (seen, path.stat().st_mtime_ns) == ([], written)
    os.utime(folder / "model.safetensors", ns=(1, 1))
    changed = locate_quantized(name, progress)
    assert changed is not None
    assert changed != path
    assert {stage for stage, _, _ in seen} == {"quantizing tiny-llama to Q8_0"}
    assert not path.exists()  # the new one took its place
    assert store.remove(changed.name) > 0


def test_a_cache_that_cannot_be_made(folder: Path, cache: Path) -> None:
    cache.write_bytes(b"a file")
    with pytest.raises(FileWriteError, match=r"models cannot be created; set INGOT_CACHE"):
        locate_quantized(f"{folder}:q8_0")


def test_names_that_are_not_of_a_quantized_checkpoint(folder: Path, tmp_path: Path) -> None:
    assert locate_quantized(str(folder)) is None
    assert locate_quantized(f"{tmp_path / 'missing'}:q8_0") is None
    for name in ("ollama:owner/tiny:q8_0", "https://host:8080/a.gguf", "hf:owner/repo/a.gguf"):
        assert locate_quantized(name) is None
    odd = tmp_path / "model:q8_0"
    odd.write_bytes(b"")
    assert locate_quantized(odd) is None  # a path that exists wins
    with pytest.raises(QuantError, match="q9_9"):
        locate_quantized(f"{folder}:q9_9")


def test_a_folder_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder without a checkpoint"):
        resolve(str(tmp_path))


def test_a_checkpoint_that_cannot_run(folder: Path) -> None:
    tensors = llama_tensors()
    del tensors["model.layers.2.mlp.up_proj.weight"]
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(ModelError, match=r"blk\.2\.ffn_up\.weight .* is missing"):
        LLM(folder)


def test_the_open_model_does_not_need_the_path(folder: Path) -> None:
    with open_model(folder) as loader:
        shutil.rmtree(folder)
        values = loader.tensors["token_embd.weight"].data.view(np.float32)
        np.testing.assert_array_equal(
            values, llama_tensors()["model.embed_tokens.weight"].reshape(-1)
        )


@pytest.mark.parametrize("type", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("spaces", [1, 2, 3])
def test_tensors_at_odd_addresses(type: str, spaces: int, folder: Path, tmp_path: Path) -> None:
    """The header of a file may have any length; where its tensors begin changes nothing."""
    even, odd = folder / "model.safetensors", tmp_path / "odd" / folder.name
    tensors = {name: values.astype("f2") for name, values in llama_tensors().items()}
    stored = {
        "F32": {name: values.astype("f4") for name, values in tensors.items()},
        "F16": tensors,
        "BF16": {name: upper_halves(values) for name, values in tensors.items()},
    }[type]
    types = dict.fromkeys(stored, type)
    write_safetensors(even, stored, types, align=8)
    shutil.copytree(folder, odd)
    write_safetensors(odd / "model.safetensors", stored, types, align=8, beyond=spaces)
    found = []
    for path in (folder, odd):
        plan(path).write(path / "model.gguf")
        for opened in (path, path / "model.gguf"):
            with open_model(opened) as loader:
                for tensor in loader.tensors.values():
                    assert tensor.data.ctypes.data % tensor.type.block_bytes == 0
                run = Runner(build_graph(loader, 96), loader, positions=96)
                found.append(run.run(Fixture.load("llama").token_ids[:20]))
    assert (folder / "model.gguf").read_bytes() == (odd / "model.gguf").read_bytes()
    for rows in found[1:]:
        np.testing.assert_array_equal(rows, found[0])


def upper_halves(values: np.ndarray) -> np.ndarray:
    return (values.astype("f4").view("u4") >> 16).astype("u2")
