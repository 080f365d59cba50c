"""Adapter files and PEFT folders: what is read, and what is refused with which words."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import CONFIG, write_llama, write_safetensors
from ingot.adapters import open_adapter
from ingot.adapters.gguf_adapter import read_gguf_adapter, write_gguf_adapter
from ingot.convert import open_model
from ingot.errors import AdapterError
from ingot.gguf import GgmlType, GgufLoader
from ingot.models import build_graph
from ingot.quant import encode
from tiny_adapters import EVERYTHING, pairs, write_adapter, write_random_adapter
from tiny_llama import write_tiny_llama

QUERY = "blk.0.attn_q.weight"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> GgufLoader:
    return GgufLoader(write_tiny_llama(tmp_path_factory.mktemp("base") / "base.gguf"))


def refused(path: Path, base: GgufLoader) -> str:
    with pytest.raises(AdapterError) as caught:
        open_adapter(path, base, build_graph(base))
    assert path.name in str(caught.value)
    return str(caught.value)


def test_alpha_and_rank_are_the_scale(base: GgufLoader, tmp_path: Path) -> None:
    graph = build_graph(base)
    for alpha, scale in ((8.0, 2.0), (None, 1.0), (0.0, 1.0)):
        path = write_adapter(tmp_path / f"{alpha}.gguf", pairs([QUERY], 4, 0), alpha=alpha)
        assert open_adapter(path, base, graph).tensors[QUERY].scale == scale


def test_what_a_file_says_of_itself(base: GgufLoader, tmp_path: Path) -> None:
    keys = {"adapter.lora.task_name": "pirate", "adapter.lora.prompt_prefix": "Arr"}
    path = write_adapter(tmp_path / "a.gguf", pairs([QUERY], 1, 0), keys=keys)
    adapter = open_adapter(path, base, build_graph(base))
    assert (adapter.task, adapter.prompt_prefix) == ("pirate", "Arr")
    assert adapter.nbytes == 4 * (64 + 64)


def test_files_that_are_no_adapters_of_the_model(base: GgufLoader, tmp_path: Path) -> None:
    def written(name: str, tensors: dict[str, np.ndarray] | None = None, **keys: Any) -> Path:
        made = {key.replace("__", "."): value for key, value in keys.items()}
        found = pairs([QUERY], 2, 0) if tensors is None else tensors
        return write_adapter(tmp_path / f"{name}.gguf", found, keys=made)

    assert "is no adapter" in refused(written("model", general__type="model"), base)
    assert "is no adapter" in refused(written("none", general__type=None), base)
    assert "'control_vector'" in refused(written("cv", adapter__type="control_vector"), base)
    assert "'qwen3', and the model is 'llama'" in refused(
        written("qwen", general__architecture="qwen3"), base
    )
    assert "activated LoRA" in refused(
        written("alora", adapter__alora__invocation_tokens=[1, 2]), base
    )
    assert "has no LoRA tensors" in refused(written("empty", {}), base)
    half = {f"{QUERY}.lora_a": np.zeros((2, 64), np.float32)}
    assert "has no .lora_b" in refused(written("half", half), base)
    whole = {"blk.0.attn_norm.weight": np.zeros(64, np.float32)}
    assert "replace whole tensors" in refused(written("norm", whole), base)
    there = pairs([QUERY], 2, 0)
    other = {name.replace("blk.0", "blk.9"): values for name, values in there.items()}
    assert "the model does not have" in refused(written("layer", other), base)
    norm = {name.replace("attn_q", "attn_norm"): values for name, values in there.items()}
    assert "not supported" in refused(written("norm_pair", norm), base)
    wide = {name: np.zeros((2, 65), np.float32) for name in there}
    assert "64 x 64 in the model" in refused(written("wide", wide), base)
    uneven = there | {f"{QUERY}.lora_b": np.zeros((64, 3), np.float32)}
    assert "64 x 64 in the model" in refused(written("uneven", uneven), base)
    deep = {name: np.zeros((2, 2, 64), np.float32) for name in there}
    assert "2 times A 2 x 64" in refused(written("deep", deep), base)
    mixed = there | {f"{QUERY}.lora_a": deep[f"{QUERY}.lora_a"]}
    assert "different numbers of experts" in refused(written("mixed", mixed), base)
    flipped = {
        f"{name}.lora_{side}": values
        for name, side, values in (
            ("token_embd.weight", "a", np.zeros((2, 258), np.float32)),
            ("token_embd.weight", "b", np.zeros((64, 2), np.float32)),
        )
    }
    assert "258 x 64 in the model" in refused(written("flipped", flipped), base)


def test_damaged_files(base: GgufLoader, tmp_path: Path) -> None:
    whole = write_random_adapter(tmp_path / "whole.gguf").read_bytes()
    for length in (0, 3, 40, 200, len(whole) // 2, len(whole) - 1):
        cut = tmp_path / "cut.gguf"
        cut.write_bytes(whole[:length])
        assert "cannot be read" in refused(cut, base)
    assert "there is no adapter" in refused(tmp_path / "nowhere", base)


def test_quantized_and_16_bit_tensors(base: GgufLoader, tmp_path: Path) -> None:
    floats = pairs(EVERYTHING, 32, 5)
    path = write_adapter(tmp_path / "f32.gguf", floats)
    adapter = open_adapter(path, base, build_graph(base))
    for kind in (GgmlType.F16, GgmlType.BF16, GgmlType.F32):
        file = tmp_path / f"{kind.name}.gguf"
        write_gguf_adapter(adapter, "llama", file, name="a", kind=kind)
        again = read_gguf_adapter(file, "llama")
        for name, low in adapter.tensors.items():
            found = again.tensors[name]
            assert (found.down.type, found.up.type, found.scale) == (kind, kind, low.scale)
            np.testing.assert_allclose(found.up.floats(), low.up.floats(), rtol=2**-7)
    blocks = encode(floats[f"{QUERY}.lora_b"], GgmlType.Q8_0)
    from ingot.gguf import GgufWriter  # noqa: PLC0415

    writer = GgufWriter(tmp_path / "q8.gguf")
    for key, value in {"architecture": "llama", "type": "adapter"}.items():
        writer.add(f"general.{key}", value)
    writer.add("adapter.type", "lora")
    writer.add_tensor(f"{QUERY}.lora_a", floats[f"{QUERY}.lora_a"])
    writer.add_tensor(f"{QUERY}.lora_b", blocks, GgmlType.Q8_0)
    low = read_gguf_adapter(writer.write()[0], "llama").tensors[QUERY]
    np.testing.assert_allclose(low.up.floats(), floats[f"{QUERY}.lora_b"], atol=0.02)


# PEFT

MODULES = {
    "model.layers.0.self_attn.q_proj": (96, 96),
    "model.layers.1.self_attn.k_proj": (32, 96),
    "model.layers.2.mlp.down_proj": (96, 160),
}


def write_peft(
    folder: Path,
    *,
    rank: int = 4,
    tensors: dict[str, np.ndarray] | None = None,
    **config: Any,
) -> Path:
    """A folder as PEFT writes it, for the tiny Llama of the checkpoints."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(3)
    found = {}
    for module, (rows, columns) in MODULES.items():
        for side, shape in (("A", (rank, columns)), ("B", (rows, rank))):
            name = f"base_model.model.{module}.lora_{side}.weight"
            found[name] = random.normal(0, 0.3, shape).astype(np.float32)
    write_safetensors(folder / "adapter_model.safetensors", found if tensors is None else tensors)
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "bias": "none"} | config
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> GgufLoader:
    return open_model(write_llama(tmp_path_factory.mktemp("llama") / "base"))


def test_rows_of_queries_and_keys_have_the_order_of_the_file(
    llama: GgufLoader, tmp_path: Path
) -> None:
    adapter = open_adapter(write_peft(tmp_path / "a"), llama, build_graph(llama))
    assert sorted(adapter.tensors) == [
        "blk.0.attn_q.weight",
        "blk.1.attn_k.weight",
        "blk.2.ffn_down.weight",
    ]
    from ingot.convert.safetensors import as_array, read_safetensors  # noqa: PLC0415

    stored = read_safetensors(tmp_path / "a" / "adapter_model.safetensors")
    up = as_array(stored["base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"])
    heads = CONFIG["num_attention_heads"]
    wanted = up.reshape(heads, 2, 8, 4).swapaxes(1, 2).reshape(96, 4)
    np.testing.assert_array_equal(adapter.tensors["blk.0.attn_q.weight"].up.values, wanted)
    assert adapter.tensors["blk.0.attn_q.weight"].scale == 2.0


def test_scales_of_peft(llama: GgufLoader, tmp_path: Path) -> None:
    graph = build_graph(llama)
    root = open_adapter(write_peft(tmp_path / "root", use_rslora=True), llama, graph)
    assert root.tensors["blk.0.attn_q.weight"].scale == 4.0
    own = write_peft(tmp_path / "own", alpha_pattern={"q_proj": 2, r"layers\.2\.mlp\..*": 20})
    scales = {name: low.scale for name, low in open_adapter(own, llama, graph).tensors.items()}
    assert list(scales.values()) == [0.5, 2.0, 5.0]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"peft_type": "IA3"}, "only 'LORA'"),
        ({"use_dora": True}, "use_dora=True"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "bias='all'"),
        ({"lora_bias": True}, "lora_bias"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"lora_alpha": None}, "no valid lora_alpha"),
        ({"lora_alpha": 10**400}, "no valid lora_alpha"),
        ({"lora_alpha": float("nan")}, "no valid lora_alpha"),
        ({"alpha_pattern": {"q_proj": "x"}}, "not names with numbers"),
        ({"alpha_pattern": {"(": 1}}, "alpha_pattern '('"),
    ],
)
def test_settings_that_are_refused(
    llama: GgufLoader, tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    assert words in refused(write_peft(tmp_path / "a", **config), llama)


def test_tensors_that_are_refused(llama: GgufLoader, tmp_path: Path) -> None:
    query = "base_model.model.model.layers.0.self_attn.q_proj"
    good = {
        f"{query}.lora_A.weight": np.zeros((2, 96), np.float32),
        f"{query}.lora_B.weight": np.zeros((96, 2), np.float32),
    }

    def words(name: str, **changes: np.ndarray | None) -> str:
        tensors = {**good, **{f"{query}.{key}": value for key, value in changes.items()}}
        kept = {key: value for key, value in tensors.items() if value is not None}
        return refused(write_peft(tmp_path / name, tensors=kept), llama)

    zeros = np.zeros((2, 2), np.float32)
    assert "neither A nor B" in words("dora", **{"lora_magnitude_vector": zeros})
    assert "only one of A and B" in words("half", **{"lora_B.weight": None})
    assert "must be the rank" in words("ranks", **{"lora_B.weight": np.zeros((96, 3), np.float32)})
    shapes = {"lora_A.weight": (0, 96), "lora_B.weight": (96, 0)}
    nothing = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    assert "which is 1 or more" in words("nothing", **nothing)
    assert "96 x 96 in the model" in words(
        "rows", **{"lora_B.weight": np.zeros((48, 2), np.float32)}
    )
    other = {key.replace("q_proj", "z_proj"): value for key, value in good.items()}
    assert "has no place" in refused(write_peft(tmp_path / "name", tensors=other), llama)
    expert = {
        key.replace("self_attn.q_proj", "mlp.experts.0.up_proj"): value
        for key, value in good.items()
    }
    assert "expert" in refused(write_peft(tmp_path / "expert", tensors=expert), llama)


def test_folders_that_are_no_adapters(llama: GgufLoader, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "adapter_config.json" in refused(empty, llama)
    folder = write_peft(tmp_path / "pickled")
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    assert "may run code" in refused(folder, llama)
    folder = write_peft(tmp_path / "broken")
    (folder / "adapter_config.json").write_text("{")
    assert "not valid JSON" in refused(folder, llama)
    folder = write_peft(tmp_path / "cut")
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    assert "cannot be read" in refused(folder, llama)
