"""Checkpoints with a layer for multi-token prediction, converted: the layer comes along.

The layer is a copy of the last one with attention, or of the first, dense one, with the matrices
around it that repositories have. What the model computes is the same as without it, here and in
llama.cpp.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from checkpoints import TOKENIZER, write_safetensors
from ingot.convert.conversion import plan
from ingot.convert.safetensors import as_array, read_safetensors
from ingot.gguf import GgufLoader
from ingot.models import build_graph
from ingot.quant import decode
from models.recipes import RECIPES
from models.tiny_models import Fixture
from run_batches import Runner

pytestmark = pytest.mark.oracle
WORKER = Path(__file__).with_name("llama_cpp_logits_worker.py")
# By the end of the file's name: the stored name. After the layers, or apart from them.
AFTER = {
    "eh_proj.weight": "eh_proj.weight",
    "enorm.weight": "enorm.weight",
    "hnorm.weight": "hnorm.weight",
    "shared_head_norm.weight": "shared_head.norm.weight",
    "shared_head_head.weight": "shared_head.head.weight",
    "embed_tokens.weight": "embed_tokens.weight",
}
APART = {
    "eh_proj.weight": "fc.weight",
    "enorm.weight": "pre_fc_norm_embedding.weight",
    "hnorm.weight": "pre_fc_norm_hidden.weight",
    "shared_head_norm.weight": "norm.weight",
}
MODELS = {
    "glm4moe": AFTER, "deepseek2-v3": AFTER, "deepseek32": AFTER, "glm-dsa": AFTER,
    "qwen35": APART, "qwen35moe": APART,
    "exaone-moe": APART,
}  # fmt: skip
DENSE = {"exaone-moe"}  # whose layer has no experts
DIFFERENCES = {"qwen35", "qwen35moe"}  # norms are stored as what is added to 1


@pytest.mark.parametrize("name", MODELS)
def test_the_layer_comes_along(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not here: pip install torch==2.13.0")
    from models.make_fixtures import filled_model  # noqa: PLC0415

    fixture = Fixture.load(name)
    model, _ = filled_model(RECIPES[name])
    model.float().save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    path = tmp_path / "model.safetensors"
    stored = {key: as_array(tensor).copy() for key, tensor in read_safetensors(path).items()}
    layers = int(fixture.metadata["block_count"])
    rng = np.random.default_rng(4)
    width = int(fixture.metadata["embedding_length"])
    shapes = {"eh_proj.weight": (width, 2 * width)} | dict.fromkeys(
        ("shared_head_head.weight", "embed_tokens.weight"), stored["lm_head.weight"].shape
    )
    around = {
        stored_name: rng.standard_normal(shapes.get(end, (width,))).astype("f4")
        for end, stored_name in MODELS[name].items()
    }
    attending = max(int(key.split(".")[2]) for key in stored if "self_attn" in key)
    attending = 0 if name in DENSE else attending
    copied = {
        key.split(".", 3)[3]: values
        for key, values in stored.items()
        if key.startswith(f"model.layers.{attending}.")
    }
    if MODELS[name] is AFTER:
        stored |= {f"model.layers.{layers}.{k}": v for k, v in {**copied, **around}.items()}
    else:
        stored |= {f"mtp.layers.0.{key}": values for key, values in copied.items()}
        stored |= {f"mtp.{key}": values for key, values in around.items()}
    write_safetensors(path, stored)

    plan(tmp_path, "f32").write(tmp_path / "model.gguf")
    with GgufLoader(tmp_path / "model.gguf") as loader:
        assert loader.metadata[f"{fixture.architecture}.block_count"] == layers + 1
        assert loader.metadata[f"{fixture.architecture}.nextn_predict_layers"] == 1
        for end, stored_name in MODELS[name].items():
            tensor = loader.tensors[f"blk.{layers}.nextn.{end}"]
            more = 1 if name in DIFFERENCES and "norm" in end else 0
            np.testing.assert_allclose(
                decode(tensor.data, tensor.type, tensor.shape),
                around[stored_name] + more,
                rtol=1e-6,
            )
        own = {n for n in loader.tensors if n.startswith(f"blk.{layers}.") and ".nextn." not in n}
        expected = {n for n in loader.tensors if n.startswith(f"blk.{attending}.")}
        assert {n.split(".", 2)[2] for n in own} == {n.split(".", 2)[2] for n in expected}
        found = Runner(build_graph(loader, 96), loader, positions=96).run(fixture.token_ids)
    np.testing.assert_allclose(found, fixture.logits, atol=1e-4 * np.abs(fixture.logits).max())
    if find_spec("llama_cpp") is not None:
        job = {
            "model": str(tmp_path / "model.gguf"), "ids": fixture.token_ids, "context": 256,
            "want": "logits", "width": fixture.logits.shape[1], "out": str(tmp_path / "rows.npy"),
        }  # fmt: skip
        (tmp_path / "jobs.json").write_text(json.dumps([job]))
        subprocess.run([sys.executable, WORKER, tmp_path / "jobs.json"], check=True)
        assert (tmp_path / "rows.npy").exists(), "llama.cpp does not take the file"
        theirs = np.load(tmp_path / "rows.npy")
        ours = fixture.logits - fixture.logits.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(theirs - theirs.mean(axis=1, keepdims=True), ours, atol=1e-2)
