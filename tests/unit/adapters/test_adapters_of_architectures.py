"""PEFT's names in architectures that have special layers: latents, states, streams, multipliers.

Each module gets a pair; the adapter must change the tensors of the file that hold its rows, and
nothing else. tests/oracle/test_adapters_peft.py compares logits with PEFT itself.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from checkpoints import write_safetensors
from ingot.adapters import Adapter, open_adapter
from ingot.errors import AdapterError
from ingot.gguf import GgufLoader
from ingot.models import build_graph
from models.tiny_models import Fixture

LATENTS = {
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.o_proj": "attn_output",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
MAMBA = {"mixer.in_proj": "ssm_in", "mixer.out_proj": "ssm_out"}
MODULES: dict[str, Mapping[str, str]] = {  # with the tensors of the file, joined by +
    "deepseek2": LATENTS | {"mlp.up_proj": "ffn_up"},
    "mistral4": LATENTS,
    "minicpm3": dict(list(LATENTS.items())[:4]),
    "mamba": MAMBA | {"mixer.x_proj": "ssm_x", "mixer.dt_proj": "ssm_dt"},
    "mamba2": MAMBA,
    "granitehybrid": ATTENTION
    | {"mamba.in_proj": "ssm_in", "shared_mlp.input_linear": "ffn_gate_shexp+ffn_up_shexp"},
    "granitehybrid-dense": ATTENTION
    | {"mamba.in_proj": "ssm_in", "shared_mlp.input_linear": "ffn_gate+ffn_up"},
    "gemma3n": ATTENTION
    | {
        "per_layer_input_gate": "inp_gate",
        "per_layer_projection": "proj",
        "laurel.linear_left": "laurel_l",
        "laurel.linear_right": "laurel_r",
        "altup.modality_router": "altup_router",
    },
}
RANK = 3


def opened(name: str, modules: Mapping[str, str], folder: Path) -> tuple[Adapter, set[str]]:
    """An adapter of the modules in every layer that has them, and the tensors it must change."""
    fixture, adapter = Fixture.load(name), folder / "adapter"
    model = GgufLoader(fixture.write(folder / "model.gguf"))
    layers = "backbone.layers" if "mixer.in_proj" in modules else "model.layers"
    random, pairs, wanted = np.random.default_rng(0), {}, set()
    for layer in {key.split(".")[1] for key in model.tensors if key.startswith("blk.")}:
        for module, joined in modules.items():
            names = [f"blk.{layer}.{stem}.weight" for stem in joined.split("+")]
            if not model.tensors.keys() >= set(names):
                continue
            rows = sum(model.tensors[each].shape[0] for each in names)
            full = f"base_model.model.{layers}.{layer}.{module}"
            columns = model.tensors[names[0]].shape[1]
            pairs[f"{full}.lora_A.weight"] = random.random((RANK, columns), np.float32)
            pairs[f"{full}.lora_B.weight"] = random.random((rows, RANK), np.float32)
            wanted |= set(names)
    adapter.mkdir()
    write_safetensors(adapter / "adapter_model.safetensors", pairs)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    with model:
        return open_adapter(adapter, model, build_graph(model)), wanted


@pytest.mark.parametrize("name", MODULES)
def test_the_tensors_of_the_modules_change(name: str, tmp_path: Path) -> None:
    adapter, wanted = opened(name, MODULES[name], tmp_path)
    stems = {stem for joined in MODULES[name].values() for stem in joined.split("+")}
    assert {key.split(".")[2] for key in wanted} == stems
    assert adapter.tensors.keys() == wanted
    assert {low.rank for low in adapter.tensors.values()} == {RANK}


def test_weights_that_a_file_holds_multiplied_are_refused_by_name(tmp_path: Path) -> None:
    """Falcon-H1's multipliers are in no file."""
    with pytest.raises(AdapterError, match=r"attn_q\.weight are not supported; merge the adapter"):
        opened("falcon-h1", {"self_attn.q_proj": "attn_q"}, tmp_path)


def test_weights_that_are_not_multiplied_can_be_adapted(tmp_path: Path) -> None:
    adapter, wanted = opened("falcon-h1", {"feed_forward.up_proj": "ffn_up"}, tmp_path)
    assert adapter.tensors.keys() == wanted
    assert wanted
