"""Checkpoints of multimodal models: the language model in the forms in which it is stored."""

import json
from pathlib import Path

import numpy as np
import pytest

from checkpoints import NAMES, TOKENIZER, write_safetensors
from ingot.convert.conversion import plan
from ingot.gguf import GgufLoader
from ingot.models import build_graph
from models.tiny_models import Fixture
from run_batches import Runner

FIXTURE = Fixture.load("qwen3vlmoe")
MORE = {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate_inp": "mlp.gate",
}
CONFIG = {
    "architectures": ["Qwen3VLMoeForConditionalGeneration"],
    "text_config": {
        "hidden_size": 60, "intermediate_size": 90, "moe_intermediate_size": 32,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20,
        "num_local_experts": 9, "num_experts_per_tok": 4, "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6, "vocab_size": 61, "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e6, "mrope_interleaved": True,
            "mrope_section": [4, 3, 3],
        },
    },
    "tie_word_embeddings": False,  # what counts
    "vision_config": {"deepstack_visual_indexes": [0, 2]},
}  # fmt: skip


def stored(inputs_first: bool) -> dict[str, np.ndarray]:
    """The tensors of a repository, with experts as its makers or as `transformers` stores them."""
    tensors, found = FIXTURE.tensors(), {}
    for name, values in tensors.items():
        *layer, stem, ending = name.split(".")
        prefix = f"model.language_model.layers.{layer[1]}." if layer else ""
        if stem in ("ffn_gate_exps", "ffn_down_exps"):
            parts = [values]
            if stem == "ffn_gate_exps":
                parts.append(tensors[name.replace("gate", "up")])
            experts = np.concatenate(parts, axis=1)
            full_name = f"{prefix}mlp.experts.{'down_proj' if 'down' in stem else 'gate_up_proj'}"
            found[full_name] = experts.swapaxes(1, 2) if inputs_first else experts
        elif stem != "ffn_up_exps":
            inner = {**NAMES, **MORE}[stem].replace("model.", "model.language_model.")
            found[f"{prefix}{inner}.{ending}"] = values
    found["model.visual.patch_embed.proj.weight"] = np.zeros((16, 3, 2, 4, 4), "f4")
    return {name: np.ascontiguousarray(values) for name, values in found.items()}


@pytest.mark.parametrize("inputs_first", [True, False])
def test_experts_stored_either_way(inputs_first: bool, tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", stored(inputs_first))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    plan(tmp_path, "f32").write(tmp_path / "model.gguf")
    with GgufLoader(tmp_path / "model.gguf") as loader:
        for name, values in FIXTURE.tensors().items():
            np.testing.assert_array_equal(
                loader.tensors[name].data.view(np.float32).reshape(values.shape), values
            )
        found = Runner(build_graph(loader), loader, positions=96).run(FIXTURE.token_ids)
    np.testing.assert_allclose(found, FIXTURE.logits, atol=1e-4 * np.abs(FIXTURE.logits).max())
