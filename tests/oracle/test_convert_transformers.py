"""Checkpoints that `transformers` saves, converted: the same tensors, keys and logits.

The recipes of tests/models state, apart from the product, which names, orders and keys a file of
each architecture has; `stable_values` fills the model so that every tensor of the file is known.
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
from ingot.models import build_graph, checkpoints
from ingot.quant import decode
from models.recipes import RECIPES
from models.tiny_models import Fixture
from run_batches import Runner

pytestmark = pytest.mark.oracle

# Models that cannot be converted, or whose files of this form come from elsewhere.
NOT_CONVERTED = {"baichuan", "bitnet", "minicpm-old", "phi2-fused", "qwen3-rank"}
# Keys that a configuration does not hold, or that nobody reads.
UNSTATED = {"pooling_type"}
UNREAD = {"attention.sliding_window", "attention.key_length", "attention.value_length"}
CONTEXT = 96
WORKER = Path(__file__).with_name("llama_cpp_logits_worker.py")
# Where llama.cpp computes another network (docs/models.md), or refuses a byte-level vocabulary.
DIFFERENT = {
    "ernie4_5-moe-alternating", "exaone4-window", "gpt-oss", "gptj", "phimoe", "phimoe-short",
    "phi3",
    "phi3-short",  # in a context of 256, the smallest it has, it takes the long factors
}  # fmt: skip
CONVERTIBLE = {architecture for architecture, _ in checkpoints().values()}
CONVERTED = [
    name
    for name, recipe in RECIPES.items()
    if name not in NOT_CONVERTED and recipe.architecture in CONVERTIBLE
]


# Models that transformers has no class for, so that the recipes borrow another one: the parts of
# names in their repositories, and settings that are called differently there.
LAYER = "transformer.h."
AS_PUBLISHED: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "exaone": (
        "ExaoneForCausalLM",
        {
            "model.layers.": LAYER, "model.embed_tokens": "transformer.wte",
            "model.norm": "transformer.ln_f", "input_layernorm": "ln_1",
            "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.attention.out_proj",
            "self_attn": "attn.attention", "mlp.gate_proj": "mlp.c_fc_0",
            "mlp.up_proj": "mlp.c_fc_1", "mlp.down_proj": "mlp.c_proj",
        },
        {"num_hidden_layers": "num_layers", "rms_norm_eps": "layer_norm_epsilon"},
    ),
    "internlm2": (
        "InternLM2ForCausalLM",
        {
            "model.embed_tokens": "model.tok_embeddings", "lm_head": "output",
            "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
            "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
            "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3",
        },
        {},
    ),
    "minicpm": ("MiniCPMForCausalLM", {}, {}),
    "qwen": (
        "QWenLMHeadModel",
        {
            "model.layers.": LAYER, "model.embed_tokens": "transformer.wte",
            "model.norm": "transformer.ln_f", "input_layernorm": "ln_1",
            "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.c_proj",
            "mlp.gate_proj": "mlp.w2", "mlp.up_proj": "mlp.w1", "mlp.down_proj": "mlp.c_proj",
        },
        {"rms_norm_eps": "layer_norm_epsilon", "max_position_embeddings": "seq_length"},
    ),
}  # fmt: skip


def republish(folder: Path, kind: str, names: dict[str, str], settings: dict[str, str]) -> None:
    """Store a saved model as the repositories of another class do."""
    config = json.loads((folder / "config.json").read_text())
    tensors = {}
    stored = read_safetensors(folder / "model.safetensors")
    for full_name, tensor in stored.items():
        name, values = full_name, as_array(tensor).copy()
        which = next((part for part in "qkv" if f"self_attn.{part}_proj" in name), None)
        if which and kind in ("QWenLMHeadModel", "InternLM2ForCausalLM"):
            if which != "q":
                continue
            others = [name, name.replace("q_proj", "k_proj"), name.replace("q_proj", "v_proj")]
            joined = [as_array(stored[other]) for other in others]
            if kind == "QWenLMHeadModel":
                values = np.concatenate(joined)
                name = name.replace("self_attn.q_proj", "attn.c_attn")
            else:  # for each key head: its queries, the key, the value
                heads = config["num_key_value_heads"]
                split = [part.reshape(heads, -1, part.shape[-1]) for part in joined]
                values = np.concatenate(split, axis=1).reshape(-1, joined[0].shape[-1])
                name = name.replace("self_attn.q_proj", "attention.wqkv")
        for part, other in names.items():
            name = name.replace(part, other)
        tensors[name] = values
    write_safetensors(folder / "model.safetensors", tensors)
    config["architectures"] = [kind]
    for setting, other in settings.items():
        config[other] = config.pop(setting)
    if kind == "MiniCPMForCausalLM":
        config["scale_emb"] = config["embedding_multiplier"]
        config["scale_depth"] = config["residual_multiplier"] * config["num_hidden_layers"] ** 0.5
        config["dim_model_base"] = config["hidden_size"] / config["logits_scaling"]
    if kind == "QWenLMHeadModel":
        config["intermediate_size"] *= 2
        del config["num_key_value_heads"]
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module", params=CONVERTED)
def saved(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    pytest.importorskip("torch", reason="torch is not here: pip install torch==2.13.0")
    from models.make_fixtures import filled_model  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("model")  # not its name: llama.cpp treats "phi3" specially
    model, _ = filled_model(RECIPES[request.param])
    model.float().save_pretrained(folder)
    if request.param in AS_PUBLISHED:
        republish(folder, *AS_PUBLISHED[request.param])
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    plan(folder, "f32").write(folder / "model.gguf")
    return request.param, folder


def test_tensors_and_keys(saved: tuple[str, Path]) -> None:
    name, folder = saved
    fixture = Fixture.load(name)
    with GgufLoader(folder / "model.gguf") as loader:
        expected = fixture.tensors()
        assert loader.tensors.keys() == expected.keys()
        for key, values in expected.items():
            tensor = loader.tensors[key]
            found = decode(tensor.data, tensor.type, tensor.shape)
            if not key.endswith("exp_probs_b.bias"):  # the recipe keeps a dimension of one
                assert found.shape == values.shape, key
            np.testing.assert_allclose(
                found.reshape(values.shape), values, rtol=1e-6, atol=3e-7, err_msg=key
            )
        assert loader.metadata.string("general.architecture") == fixture.architecture
        for key, value in fixture.metadata.items():
            shared = key.startswith("tokenizer.")
            full = key if shared else f"{fixture.architecture}.{key}"
            if key in UNSTATED or (key in UNREAD and full not in loader.metadata):
                continue
            assert loader.metadata[full] == pytest.approx(value), key


def test_logits(saved: tuple[str, Path]) -> None:
    name, folder = saved
    fixture, recipe = Fixture.load(name), RECIPES[name]
    if recipe.ranker:
        pytest.skip("its tensors are the same; scores are the business of other tests")
    with GgufLoader(folder / "model.gguf") as loader:
        found = Runner(build_graph(loader, CONTEXT), loader, positions=CONTEXT).run(
            fixture.token_ids
        )
    np.testing.assert_allclose(found, fixture.logits, atol=1e-4 * np.abs(fixture.logits).max())


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="no peer: make test-peer installs it")
def test_llama_cpp_agrees(saved: tuple[str, Path]) -> None:
    name, folder = saved
    fixture, recipe = Fixture.load(name), RECIPES[name]
    if name in DIFFERENT or recipe.ranker:
        pytest.skip("llama.cpp computes another network, or scores differently")
    job = {
        "model": str(folder / "model.gguf"),
        "ids": fixture.token_ids,
        "context": 256,
        "want": "hidden" if recipe.encoder else "logits",
        "width": fixture.logits.shape[1],
        "out": str(folder / "rows.npy"),
    }
    (folder / "jobs.json").write_text(json.dumps([job]))
    subprocess.run([sys.executable, WORKER, folder / "jobs.json"], check=True)
    assert (folder / "rows.npy").exists(), "llama.cpp does not take the file"
    theirs = np.load(folder / "rows.npy")
    if recipe.encoder:
        assert np.abs(fixture.logits - theirs).max() <= 1e-2
        return
    for row, other in zip(fixture.logits, theirs, strict=True):
        assert row.max() - row[other.argmax()] <= 1e-2
        np.testing.assert_allclose(row - row.mean(), other - other.mean(), atol=1e-2)
