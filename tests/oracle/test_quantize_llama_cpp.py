"""Whole files beside llama.cpp's quantizer: the same types, and errors that are not larger."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ingot.gguf import GgufLoader, GgufWriter, ValueType
from ingot.quant import decode
from ingot.quantize import plan
from ingot.quantize.mixes import MIXES

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(find_spec("llama_cpp") is None, reason="no peer: make test-peer"),
]

WIDTH, VOCABULARY = 256, 64
# Run by the peer: each mix of a file, in a process of its own.
WORKER = """
import ctypes, json, sys
import llama_cpp as lc
quiet = lc.llama_log_callback(lambda level, text, data: None)
lc.llama_log_set(quiet, ctypes.c_void_p(0))
lc.llama_backend_init()
source, jobs = sys.argv[1], json.loads(sys.argv[2])
for out, number in jobs:
    params = lc.llama_model_quantize_default_params()
    params.ftype, params.nthread = number, 2
    assert lc.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(params)) == 0
"""
MODELS = {
    "llama": {"layers": 16},
    "all heads": {"layers": 9, "kv_heads": 4},
    "tied": {"architecture": "qwen2", "layers": 10, "tied": True},
    "falcon": {"architecture": "falcon", "layers": 17, "fused": True},
    "gptneox": {"architecture": "gptneox", "layers": 9, "kv_heads": 4, "fused": True},
    "mixtral": {"layers": 9, "experts": 8},
    "many experts": {"architecture": "qwen3moe", "layers": 9, "experts": 16},
    "odd rows": {"layers": 8, "width": 288},
    "eighty layers": {"layers": 80},
}


def write_model(
    path: Path,
    *,
    architecture: str = "llama",
    layers: int,
    kv_heads: int = 1,
    experts: int = 0,
    tied: bool = False,
    fused: bool = False,
    width: int = WIDTH,
) -> Path:
    heads, rng = 4, np.random.default_rng(2)
    writer = GgufWriter(path)
    writer.add("general.architecture", architecture)
    keys = {
        "block_count": layers, "context_length": 64, "embedding_length": width,
        "feed_forward_length": width, "attention.head_count": heads,
        "attention.head_count_kv": kv_heads, "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": width // heads,
        "use_parallel_residual": True,
    }  # fmt: skip
    if experts:
        keys |= {"expert_count": experts, "expert_used_count": 2}
        keys |= {"expert_feed_forward_length": width}
    for key, value in keys.items():
        writer.add(f"{architecture}.{key}", value)
    writer.add("tokenizer.ggml.model", "llama")
    writer.add("tokenizer.ggml.tokens", [f"t{n}" for n in range(VOCABULARY)])
    writer.add("tokenizer.ggml.scores", [0.0] * VOCABULARY, ValueType.FLOAT32)
    writer.add("tokenizer.ggml.token_type", [1] * VOCABULARY, ValueType.INT32)

    def matrix(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", rng.standard_t(5, shape).astype("f2"))

    matrix("token_embd", VOCABULARY, width)
    if not tied:
        matrix("output", VOCABULARY, width)
    kv_width = width // heads * kv_heads
    for layer in range(layers):
        block = f"blk.{layer}."
        writer.add_tensor(f"{block}attn_norm.weight", np.ones(width, "f4"))
        if fused:
            matrix(f"{block}attn_qkv", width + 2 * kv_width, width)
        else:
            matrix(f"{block}attn_q", width, width)
            matrix(f"{block}attn_k", kv_width, width)
            matrix(f"{block}attn_v", kv_width, width)
        matrix(f"{block}attn_output", width, width)
        leading, ending = ((experts,), "_exps") if experts else ((), "")
        if experts:
            matrix(f"{block}ffn_gate_inp", experts, width)
        for name in ("ffn_gate", "ffn_up", "ffn_down"):
            matrix(f"{block}{name}{ending}", *leading, width, width)
    writer.write()
    return path


@pytest.mark.parametrize("name", MODELS)
def test_types_and_errors(name: str, tmp_path: Path) -> None:
    source = write_model(tmp_path / "model.gguf", **MODELS[name])
    mixes = [mix for mix in MIXES.values() if mix.name not in ("F32", "BF16")]
    if name == "eighty layers":  # many weights; only these have a rule for such a model
        mixes = [MIXES[mix] for mix in ("Q3_K_M", "Q4_K_S", "Q4_K_M")]
    jobs = [(str(tmp_path / f"{mix.name}.gguf"), mix.file_type) for mix in mixes]
    subprocess.run([sys.executable, "-c", WORKER, str(source), json.dumps(jobs)], check=True)
    with GgufLoader(source) as loader:
        for mix in mixes:
            planned = plan(loader, mix)
            with GgufLoader(tmp_path / f"{mix.name}.gguf") as theirs:
                expected = {key: tensor.type.name for key, tensor in theirs.tensors.items()}
                assert {k: t.name for k, t in planned.types.items()} == expected, mix.name
                if name == "llama":
                    assert_no_worse(planned, theirs, tmp_path / "ours.gguf")


def assert_no_worse(planned, theirs: GgufLoader, path: Path) -> None:
    """The error over all weights is not above llama.cpp's."""
    planned.write(path)
    with GgufLoader(path) as ours:
        assert squared_error(planned.source, ours) <= 1.0001 * squared_error(planned.source, theirs)


def squared_error(source: GgufLoader, other: GgufLoader) -> float:
    total = 0.0
    for name, tensor in source.tensors.items():
        found = other.tensors[name]
        difference = decode(tensor.data, tensor.type) - decode(found.data, found.type)
        total += float(np.square(difference, dtype="f8").sum())
    return total
