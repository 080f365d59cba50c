"""Checkpoints that `transformers` saves, converted: the same tensors, keys and logits.

The recipes of tests/models state, apart from the product, which names, orders and keys a file of
each architecture has; `stable_values` fills the model so that every tensor of the file is known.
"""

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_tables import is_f32, key_types, tensor_kind
from published import PUBLISHED, republish

from checkpoints import TOKENIZER
from ingot.convert import open_model
from ingot.convert.conversion import plan
from ingot.gguf import GgufLoader
from ingot.models import build_graph
from ingot.quant import decode
from models.recipes import RECIPES
from models.text_runner import TextRunner
from models.tiny_models import PROMPT, SHARED_KEYS, Fixture
from run_batches import Runner

pytestmark = pytest.mark.oracle

# Models that cannot be converted, or whose files of this form come from elsewhere.
NOT_CONVERTED = {"jina-bert-v2-split", "minicpm-old", "phi2-fused", "qwen3next-old"}
OLDER_FORM = {"deepseek2-lite"}  # files that have other tensors than those of the converter
# Keys that a configuration does not hold, or that nobody reads.
UNSTATED = {"pooling_type"}
UNREAD = {"attention.sliding_window", "attention.key_length", "attention.value_length"}
# What every file has.
NEEDED = [
    "general.architecture", "general.type", "general.name", "general.file_type",
    "general.quantization_version",
    *(f"tokenizer.ggml.{key}" for key in ("model", "pre", "tokens", "token_type", "merges")),
]  # fmt: skip
NEEDED_OF_NETWORK = (
    "block_count", "context_length", "embedding_length", "feed_forward_length",
    "attention.head_count", "vocab_size",
)  # fmt: skip
CONTEXT = 96
WORKER = Path(__file__).with_name("llama_cpp_logits_worker.py")
# Where llama.cpp computes another network (docs/models.md), or refuses a byte-level vocabulary.
DIFFERENT = {
    "deepseek2", "ernie4_5-moe-alternating", "exaone4-window", "gemma3n", "gpt-oss", "gptj",
    "phimoe", "phimoe-short", "phi3",
    "t5-deep", "smallthinker-window",
    "phi3-short",  # in a context of 256, the smallest it has, it takes the long factors
}  # fmt: skip
# Of all logits: it leaves this out, as docs/models.md says.
FACTORS = {"t5-tied": 64**-0.5}
NOT_CONVERTED |= {"baichuan-13b"}  # a network that `transformers` has under no name
CONVERTED = [name for name in RECIPES if name not in NOT_CONVERTED]


@pytest.fixture(scope="module", params=CONVERTED)
def saved(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    pytest.importorskip("torch", reason="torch is not here: pip install torch==2.13.0")
    from models.make_fixtures import filled_model  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("model")  # not its name: llama.cpp treats "phi3" specially
    model, _ = filled_model(RECIPES[request.param])
    model.float().save_pretrained(folder)
    if request.param in PUBLISHED:
        republish(folder, PUBLISHED[request.param])
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    plan(folder, "f32").write(folder / "model.gguf")
    return request.param, folder


def test_tensors_and_keys(saved: tuple[str, Path]) -> None:
    name, folder = saved
    fixture = Fixture.load(name)
    if name in OLDER_FORM:
        pytest.skip("its fixture has the tensors of older files")
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
            shared = key.startswith(SHARED_KEYS)
            full = key if shared else f"{fixture.architecture}.{key}"
            if key in UNSTATED or (key in UNREAD and full not in loader.metadata):
                continue
            assert loader.metadata[full] == pytest.approx(value), key


def test_the_gguf_package_knows_all_of_it(saved: tuple[str, Path]) -> None:
    """Names, shapes and values of tensors; names, types and values of keys."""
    path = saved[1] / "model.gguf"
    reader = gguf.GGUFReader(path)
    with GgufLoader(path) as loader:
        architecture = loader.metadata.string("general.architecture")
        assert [tensor.name for tensor in reader.tensors] == list(loader.tensors)
        for tensor in reader.tensors:
            assert tensor_kind(architecture, tensor.name) is not None, tensor.name
            ours = loader.tensors[tensor.name]
            assert tensor.tensor_type.name == ours.type.name == "F32", tensor.name
            assert tuple(reversed(tensor.shape)) == ours.shape, tensor.name
            assert tensor.data.tobytes() == bytes(ours.data), tensor.name
        keys = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        assert keys.keys() == set(loader.metadata)
        for key, field in keys.items():
            values, (kind, *of_items) = field.contents(), field.types
            assert kind in key_types(architecture)[key], key
            assert not of_items or of_items == [gguf.GGUFValueType.get_type(values[0])], key
            assert values == pytest.approx(loader.metadata[key]), key
    assert {*NEEDED, *(f"{architecture}.{key}" for key in NEEDED_OF_NETWORK)} <= keys.keys()
    assert keys["general.file_type"].contents() == gguf.LlamaFileType.ALL_F32


def test_what_is_f32_in_a_file_of_f16(saved: tuple[str, Path]) -> None:
    name, folder = saved
    path = folder / "f16.gguf"
    plan(folder, "f16").write(path)
    reader = gguf.GGUFReader(path)
    architecture = RECIPES[name].architecture
    for tensor in reader.tensors:
        expected = "F32" if is_f32(architecture, tensor.name, len(tensor.shape)) else "F16"
        assert tensor.tensor_type.name == expected, tensor.name
    assert reader.fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_F16


@pytest.mark.parametrize("written", [True, False])
def test_logits(saved: tuple[str, Path], written: bool) -> None:
    """Of the file, and of the checkpoint without a file."""
    name, folder = saved
    fixture, recipe = Fixture.load(name), RECIPES[name]
    if recipe.ranker:
        pytest.skip("its tensors are the same; scores are the business of other tests")
    ids = fixture.token_ids
    with open_model(folder / "model.gguf" if written else folder) as loader:
        graph = build_graph(loader, CONTEXT)
        if recipe.encoder_decoder:
            found = TextRunner(graph, loader).text(ids[:PROMPT], ids[PROMPT:])
        else:
            found = Runner(graph, loader, positions=CONTEXT).run(ids)
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
        "prompt": PROMPT
        if recipe.encoder_decoder
        else len(fixture.token_ids)
        if recipe.encoder
        else 0,
        "out": str(folder / "rows.npy"),
    }
    (folder / "jobs.json").write_text(json.dumps([job]))
    subprocess.run([sys.executable, WORKER, folder / "jobs.json"], check=True)
    assert (folder / "rows.npy").exists(), "llama.cpp does not take the file"
    theirs = np.load(folder / "rows.npy") * FACTORS.get(name, 1.0)
    if recipe.encoder:
        assert np.abs(fixture.logits - theirs).max() <= 1e-2
        return
    for row, other in zip(fixture.logits, theirs, strict=True):
        assert row.max() - row[other.argmax()] <= 1e-2
        np.testing.assert_allclose(row - row.mean(), other - other.mean(), atol=1e-2)


def test_matrices_that_are_rounded_on_use(tmp_path: Path) -> None:
    """The first class of BitNet: the file has the three values that its matrices mean."""
    torch = pytest.importorskip("torch", reason="torch is not here: pip install torch==2.13.0")
    safetensors = pytest.importorskip("safetensors.torch")
    from models.make_fixtures import filled_model  # noqa: PLC0415

    model, _ = filled_model(RECIPES["bitnet"])
    model.float().save_pretrained(tmp_path)
    stored = safetensors.load_file(tmp_path / "model.safetensors")
    names = {"self_attn.attn_sub_norm": "self_attn.inner_attn_ln", "ffn_sub_norm": "ffn_layernorm"}
    for new, old in names.items():
        stored = {name.replace(new, old): tensor for name, tensor in stored.items()}
    safetensors.save_file(stored, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config["architectures"] = ["BitnetForCausalLM"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    plan(tmp_path, "f32").write(tmp_path / "model.gguf")
    ids = Fixture.load("bitnet").token_ids
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("_proj.weight"):
                mean = weight.abs().mean()
                weight.copy_((weight / mean).round().clamp(-1, 1) * mean)
                assert len(weight.unique()) == 3
        expected = model(torch.tensor([ids])).logits[0].numpy()
    for path in (tmp_path / "model.gguf", tmp_path):
        with open_model(path) as loader:
            found = Runner(build_graph(loader, CONTEXT), loader, positions=CONTEXT).run(ids)
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("T5ForConditionalGeneration", {"tie_word_embeddings": False}),
        ("T5ForConditionalGeneration", {}),
        ("MT5ForConditionalGeneration", {"feed_forward_proj": "gated-gelu"}),
    ],
)
def test_embeddings_that_are_outputs(
    model: str, settings: dict[str, object], tmp_path: Path
) -> None:
    """Scaled or not: a file with no output matrix of its own means that its logits are scaled."""
    torch = pytest.importorskip("torch", reason="torch is not here: pip install torch==2.13.0")
    transformers = pytest.importorskip("transformers")
    from models.make_fixtures import filled_model  # noqa: PLC0415

    recipe = RECIPES["t5-tied"]
    config = {**recipe.config, **settings}
    made, _ = filled_model(replace(recipe, model=model, config=config))
    assert getattr(transformers, model) is type(made)
    made.float().save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    ids = Fixture.load("t5-tied").token_ids
    prompt, written = ids[:PROMPT], ids[PROMPT : PROMPT + 5]
    with torch.no_grad():
        expected = made(
            input_ids=torch.tensor([prompt]), decoder_input_ids=torch.tensor([written])
        ).logits[0]
    with open_model(tmp_path) as loader:
        found = TextRunner(build_graph(loader), loader).text(prompt, written)
    np.testing.assert_allclose(found, expected, atol=1e-4 * float(expected.abs().max()))
