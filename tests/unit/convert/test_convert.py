"""Whole conversions of a tiny Llama: what is written, how it runs, and what is refused."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import ingot.convert.conversion
from checkpoints import bfloat16, llama_tensors, write_llama, write_safetensors
from ingot.convert import open_model
from ingot.convert.conversion import plan
from ingot.convert.packed import Mxfp4Matrix, unpacked
from ingot.convert.safetensors import read_safetensors
from ingot.convert.tensors import plan_tensors
from ingot.errors import ConversionError, DiskSpaceError, QuantError
from ingot.gguf import GgmlType, GgufLoader
from ingot.models import architectures, build_graph, checkpoints, stored_forms
from ingot.models.checkpoint import Checkpoint
from ingot.models.settings import Settings
from models.tiny_models import Fixture
from run_batches import Runner

FIXTURE = Fixture.load("llama")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "tiny-llama")


def logits(loader: GgufLoader) -> np.ndarray:
    return Runner(build_graph(loader), loader, positions=96).run(FIXTURE.token_ids)


def test_the_file_computes_what_transformers_does(folder: Path, tmp_path: Path) -> None:
    plan(folder).write(tmp_path / "out.gguf")
    with GgufLoader(tmp_path / "out.gguf") as loader:
        assert {t.type for t in loader.tensors.values()} == {GgmlType.F32}
        np.testing.assert_allclose(logits(loader), FIXTURE.logits, atol=1e-4)


def test_the_checkpoint_runs_without_a_file(folder: Path) -> None:
    with plan(folder).open() as loader:
        np.testing.assert_allclose(logits(loader), FIXTURE.logits, atol=1e-4)
        embedding = loader.tensors["token_embd.weight"].data
        assert not embedding.flags.owndata  # a view of the checkpoint
        assert not embedding.flags.writeable


def test_the_gguf_package_reads_the_file(folder: Path, tmp_path: Path) -> None:
    plan(folder, "f16").write(tmp_path / "out.gguf")
    reader = gguf.GGUFReader(tmp_path / "out.gguf")
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.architecture"] == "llama"
    assert fields["general.name"] == "tiny-llama"
    assert fields["general.file_type"] == gguf.LlamaFileType.MOSTLY_F16
    assert fields["llama.attention.head_count_kv"] == 2
    assert fields["llama.rope.dimension_count"] == 16
    assert fields["tokenizer.ggml.model"] == "gpt2"
    assert fields["tokenizer.ggml.pre"] == "gpt-2"
    types = {tensor.name: tensor.tensor_type for tensor in reader.tensors}
    assert types["blk.0.attn_q.weight"] == gguf.GGMLQuantizationType.F16
    assert types["blk.0.attn_norm.weight"] == gguf.GGMLQuantizationType.F32


def test_floats_keep_their_type(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "brain")
    tensors = {name: (v.view("u4") & 0xFFFF0000).view("f4") for name, v in llama_tensors().items()}
    write_safetensors(
        folder / "model.safetensors",
        {name: bfloat16(values) for name, values in tensors.items()},
        dict.fromkeys(tensors, "BF16"),
    )
    conversion = plan(folder)
    assert conversion.mix.name == "BF16"
    conversion.write(tmp_path / "out.gguf")
    with GgufLoader(tmp_path / "out.gguf") as loader:
        down = loader.tensors["blk.1.ffn_down.weight"]
        assert down.type is GgmlType.BF16
        stored = bfloat16(tensors["model.layers.1.mlp.down_proj.weight"])
        np.testing.assert_array_equal(down.data.view("u2").reshape(stored.shape), stored)


def test_shards_are_read_together(folder: Path, tmp_path: Path) -> None:
    plan(folder).write(tmp_path / "whole.gguf")
    tensors = llama_tensors()
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    index = {}
    for number in range(3):
        file = f"model-{number + 1:05}-of-00003.safetensors"
        write_safetensors(folder / file, {name: tensors[name] for name in names[number::3]})
        index |= dict.fromkeys(names[number::3], file)
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": index}))
    plan(folder).write(tmp_path / "shards.gguf")
    assert (tmp_path / "shards.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()
    path.write_text(json.dumps({"weight_map": {**index, "more": index[names[0]]}}))
    with pytest.raises(ConversionError, match="1 tensors of the index are in no file"):
        plan(folder)
    path.write_text(json.dumps({"weight_map": {**index, "more": "../../etc/x.safetensors"}}))
    with pytest.raises(ConversionError, match="no valid weight_map"):
        plan(folder)
    path.write_text(json.dumps({"weight_map": index}))
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ConversionError, match=r"model-00002-of-00003.safetensors is missing"):
        plan(folder)


def test_multimodal_models_are_reduced_to_their_language(folder: Path) -> None:
    tensors = {f"language_model.{name}": values for name, values in llama_tensors().items()}
    tensors["vision_tower.patch.weight"] = np.zeros((2, 2), "f4")
    write_safetensors(folder / "model.safetensors", tensors)
    with plan(folder).open() as loader:
        np.testing.assert_allclose(logits(loader), FIXTURE.logits, atol=1e-4)


@pytest.mark.parametrize("type", ["q8_0", "Q4_0", "iq4_nl"])
def test_quantized_on_the_way(type: str, folder: Path, tmp_path: Path) -> None:
    plan(folder, type).write(tmp_path / "out.gguf")
    with GgufLoader(tmp_path / "out.gguf") as loader:
        assert loader.tensors["blk.0.attn_q.weight"].type is GgmlType[type.upper()]


def test_memory_does_not_grow_with_the_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversion = plan(folder, "q8_0")
    monkeypatch.setattr(ingot.convert.conversion, "_PIECE", 1000)
    conversion.write(tmp_path / "small.gguf")  # imports what it needs
    tracemalloc.start()
    conversion.write(tmp_path / "small.gguf")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    monkeypatch.undo()
    conversion.write(tmp_path / "large.gguf")
    assert (tmp_path / "small.gguf").read_bytes() == (tmp_path / "large.gguf").read_bytes()
    assert peak < 96 * 160 * 4  # the largest tensor as float32


def test_progress_ends_at_the_size(folder: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    plan(folder).write(tmp_path / "out.gguf", lambda done, total: calls.append((done, total)))
    assert len(calls) > 20
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert 0 <= calls[-1][1] - calls[-1][0] < 32 * len(calls)  # padding


def test_a_full_disk_is_seen_before(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("ingot.files.shutil.disk_usage", lambda _: Usage)
    with pytest.raises(DiskSpaceError, match=r"out\.gguf takes .* free some space"):
        plan(folder).write(tmp_path / "out.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-llama"]


def test_a_failure_leaves_the_old_file(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_bytes(b"old")

    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan(folder).write(out, stop)
    assert out.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.gguf", "tiny-llama"]


def changed(folder: Path, **config: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))


@pytest.mark.parametrize(("changed", "kept"), [(False, False), (True, True)])
def test_an_output_that_is_called_tied(changed: bool, kept: bool, tmp_path: Path) -> None:
    """It is what is stored if that differs from the embedding, as `transformers` decides."""
    folder = write_llama(tmp_path / "llama", tie_word_embeddings=True)
    tensors = llama_tensors()
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    tensors["lm_head.weight"][-1, -1] += changed
    write_safetensors(folder / "model.safetensors", tensors)
    with open_model(folder) as model:
        assert ("output.weight" in model.tensors) is kept


@pytest.mark.parametrize(
    ("weight", "type", "reason"),
    [
        (np.nan, "f16", "NaN or infinite"),
        (-np.inf, "q8_0", "NaN or infinite"),
        (1e6, "f16", "up to 1e\\+06, but F16 ends at 65504"),
    ],
)
def test_weights_that_cannot_be_encoded(
    weight: float, type: str, reason: str, tmp_path: Path
) -> None:
    folder, tensors = write_llama(tmp_path / "llama"), llama_tensors()
    damaged = tensors["model.layers.1.mlp.up_proj.weight"].copy()
    damaged[3, 3] = weight
    tensors["model.layers.1.mlp.up_proj.weight"] = damaged
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(QuantError, match=rf"blk\.1\.ffn_up\.weight has weights.*{reason}"):
        plan(folder, type).write(tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()
    plan(folder, "f32").write(tmp_path / "out.gguf")  # as it is


def test_every_architecture_can_be_converted() -> None:
    assert all(stored_forms(name) for name in architectures())


def test_a_class_is_of_one_architecture_unless_settings_decide() -> None:
    """Several forms of a class each say which settings they are for."""
    always = Checkpoint(models=()).accepts
    for model, forms in checkpoints().items():
        assert len(forms) == 1 or all(form.accepts is not always for _, form in forms), model


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"architectures": ["LlamaForCausalLMs"]},
            "near it: LlamaForCausalLM.*ingot search.*Qwen2ForCausalLM",
        ),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "cannot be converted yet"),
        ({"architectures": []}, "does not name its architecture"),
        ({"architectures": 3}, "does not name its architecture"),
        ({"hidden_size": None}, "config.json has no hidden_size"),
        ({"hidden_size": "96"}, "hidden_size is '96'; it must be an integer"),
        ({"num_attention_heads": 7}, "which the settings of config.json do not divide"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"rms_norm_eps": True}, "rms_norm_eps is True"),
        ({"rope_scaling": 3}, "rope_scaling is 3"),
        ({"rope_scaling": {"rope_type": "linear"}}, "config.json has no factor"),
        ({"quantization_config": {"quant_method": "x"}}, "quantized with 'x'"),
    ],
)
def test_settings_that_cannot_be(config: dict, reason: str, folder: Path) -> None:
    changed(folder, **config)
    with pytest.raises(ConversionError, match=reason):
        plan(folder)


def without(name: str) -> dict[str, np.ndarray]:
    return {key: value for key, value in llama_tensors().items() if key != name}


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({**llama_tensors(), "model.layers.0.extra.weight": np.zeros(2, "f4")}, "no place"),
        ({**llama_tensors(), "model.layers.x.mlp.up_proj.weight": np.zeros(2, "f4")}, "no place"),
        ({**llama_tensors(), "fc.weight": np.zeros((2, 6), "f4")}, "no place"),  # EAGLE-3
        (without("model.embed_tokens.weight"), "no embedding"),
        (without("model.layers.1.mlp.up_proj.weight"), r"blk\.1\.ffn_up\.weight"),
        ({**llama_tensors(), "model.norm.weight": np.zeros((0,), "f4")}, "is empty"),
    ],
)
def test_tensors_that_do_not_fit(tensors: dict, reason: str, folder: Path) -> None:
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(ValueError, match=reason):
        plan(folder)


def test_files_that_are_missing(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="is not a folder"):
        plan(tmp_path / "nowhere")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConversionError, match="has no vocabulary"):
        plan(folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConversionError, match="no safetensors file; it has PyTorch's pickled"):
        plan(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ConversionError, match=r"config\.json is not valid JSON"):
        plan(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ConversionError, match=r"has no config\.json"):
        plan(folder)


def test_unknown_types_are_named(folder: Path) -> None:
    with pytest.raises(QuantError, match=r"unknown type 'q4_k_x'; the types are F32, F16"):
        plan(folder, "q4_k_x")


def e4m3_values() -> np.ndarray:
    """The values of the finite codes."""
    codes = np.arange(256)
    sizes = np.where(
        codes >> 3 & 15,
        (8 + (codes & 7)) * 2.0 ** ((codes >> 3 & 15) - 10),
        (codes & 7) * 2.0**-9,
    )
    return np.where(codes & 128, -sizes, sizes)


def test_a_checkpoint_in_fp8(folder: Path) -> None:
    """Weights of eight bits with scales of blocks; rows that are reordered take theirs along."""
    levels, tensors, types = e4m3_values(), {}, {}
    rng = np.random.default_rng(8)
    expected = {}
    for name, values in llama_tensors().items():
        if "_proj" not in name:
            tensors[name] = values
            continue
        codes = rng.integers(0, 127, values.shape).astype(np.uint8)
        blocks = tuple(-(-size // 32) for size in values.shape)
        scales = rng.uniform(0.001, 0.01, blocks).astype("f4")
        tensors[name], types[name] = codes, "F8_E4M3"
        tensors[f"{name}_scale_inv"] = scales
        wide = scales.repeat(32, 0).repeat(32, 1)[: values.shape[0], : values.shape[1]]
        expected[name] = levels[codes].astype("f4") * wide
    write_safetensors(folder / "model.safetensors", tensors, types)
    changed(folder, quantization_config={"quant_method": "fp8", "weight_block_size": [32, 32]})
    conversion = plan(folder, "f32")
    for name, file_name in (("mlp.down_proj", "ffn_down"), ("self_attn.q_proj", "attn_q")):
        found = conversion.tensors[f"blk.1.{file_name}.weight"]
        rows = expected[f"model.layers.1.{name}.weight"]
        if file_name == "attn_q":
            rows = rows.reshape(6, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
        np.testing.assert_array_equal(found.read(0, found.rows), rows)


def test_experts_in_mxfp4(tmp_path: Path) -> None:
    """Gate and up alternate row by row; the values stay, and so does the type."""
    rng = np.random.default_rng(9)
    stem = "model.layers.0.mlp.experts.gate_up_proj"
    blocks = rng.integers(0, 256, (2, 6, 1, 16)).astype(np.uint8)
    scales = rng.integers(120, 130, (2, 6, 1)).astype(np.uint8)
    biases = rng.standard_normal((2, 6)).astype("f4")
    tensors = {f"{stem}_blocks": blocks, f"{stem}_scales": scales, f"{stem}_bias": biases}
    write_safetensors(tmp_path / "x", tensors)
    [(_, checkpoint)] = checkpoints()["GptOssForCausalLM"]
    stored = unpacked(read_safetensors(tmp_path / "x"), {})
    planned = plan_tensors(checkpoint, Settings({}), stored)
    matrix = stored[f"{stem}_blocks"]
    assert isinstance(matrix, Mxfp4Matrix)
    whole = matrix.read(np.arange(12)).reshape(2, 6, 32)
    for name, first in (("ffn_gate_exps", 0), ("ffn_up_exps", 1)):
        tensor = planned[f"blk.0.{name}.weight"]
        assert (tensor.shape, tensor.kept_type) == ((2, 3, 32), GgmlType.MXFP4)
        np.testing.assert_array_equal(tensor.read(0, 6).reshape(2, 3, 32), whole[:, first::2])
        bias = planned[f"blk.0.{name}.bias"]
        assert bias.shape == (2, 3)
        np.testing.assert_array_equal(bias.read(0, 6).reshape(2, 3), biases[:, first::2])
