"""A checkpoint runs like a file: in Python, on the command line, and served."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from checkpoints import llama_tensors, write_llama, write_safetensors
from ingot import LLM
from ingot.convert import open_model
from ingot.convert.conversion import plan
from ingot.errors import ModelError, StoreError
from ingot.store import resolve

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


def test_the_command_line_takes_a_folder(folder: Path) -> None:
    done = subprocess.run(
        [INGOT, "run", "-m", folder, "-n", "4", "--temperature", "0", "-t", "1", "ABC"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    shown = subprocess.run(
        [INGOT, "inspect", folder], capture_output=True, text=True, timeout=120, check=False
    )
    assert "architecture  llama" in shown.stdout
    assert "KiB, GGUF version 3" in shown.stdout  # as large as the file would be
    assert "4.0 KiB, GGUF" not in shown.stdout  # and not as the folder


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
