"""Whole files beside llama.cpp's quantizer: the same types, and errors that are not larger."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ingot.gguf import GgufLoader, GgufWriter, ValueType
from ingot.models import build_graph, has_own_mix_rules
from ingot.quant import decode
from ingot.quantize import plan
from ingot.quantize.imatrix import ImportanceMatrix
from ingot.quantize.mixes import MIXES
from run_batches import Runner

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(find_spec("llama_cpp") is None, reason="no peer: make test-peer"),
]

WIDTH, VOCABULARY, CONTEXT = 256, 64, 256
# Run by the peer: each mix of a file, in a process of its own.
WORKER = """
import ctypes, json, sys
import llama_cpp as lc
import numpy as np
dry = len(sys.argv) > 4  # write nothing, and print what llama.cpp says
def say(level, text, data):
    if dry:
        print(text.decode(), end="")
quiet = lc.llama_log_callback(say)
lc.llama_log_set(quiet, ctypes.c_void_p(0))
lc.llama_backend_init()
source, jobs = sys.argv[1], json.loads(sys.argv[2])
entries = None
if len(sys.argv) > 3:
    known = {name: values.astype("f4").copy() for name, values in np.load(sys.argv[3]).items()}
    entries = (lc.llama_model_imatrix_data * (len(known) + 1))()
    for entry, (name, values) in zip(entries, known.items()):
        entry.name, entry.size = name.encode(), values.size
        entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
for out, number in jobs:
    params = lc.llama_model_quantize_default_params()
    params.ftype, params.nthread, params.dry_run = number, 2, dry
    if entries is not None:
        params.imatrix = entries
    assert lc.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(params)) == 0
    print("\\f" if dry else "", end="")
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
    "eighty layers, all heads": {"layers": 80, "kv_heads": 4},
    "tied, eighty layers": {"architecture": "qwen2", "layers": 80, "tied": True},
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
    scale: float = 1,
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
        writer.add_tensor(f"{name}.weight", (scale * rng.standard_t(5, shape)).astype("f2"))

    matrix("token_embd", VOCABULARY, width)
    writer.add_tensor("output_norm.weight", np.ones(width, "f4"))
    if not tied:
        matrix("output", VOCABULARY, width)
    kv_width = width // heads * kv_heads
    for layer in range(layers):
        block = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{block}{norm}.weight", np.ones(width, "f4"))
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
    mixes = [mix for mix in mixes if not mix.needs_imatrix]
    if name == "odd rows":  # llama.cpp refuses rows that are not whole blocks of this type
        mixes = [mix for mix in mixes if mix.name != "Q1_0"]
    if "eighty layers" in name:  # many weights; only these have a rule for such a model
        mixes = [MIXES[mix] for mix in ("Q3_K_M", "Q4_K_S", "Q4_K_M")]
    jobs = [(str(tmp_path / f"{mix.name}.gguf"), mix.file_type) for mix in mixes]
    subprocess.run([sys.executable, "-c", WORKER, str(source), json.dumps(jobs)], check=True)
    architecture = MODELS[name].get("architecture", "")
    with GgufLoader(source) as loader:
        for mix in mixes:
            planned = plan(loader, mix, own_rules=has_own_mix_rules(architecture))
            with GgufLoader(tmp_path / f"{mix.name}.gguf") as theirs:
                expected = {key: tensor.type.name for key, tensor in theirs.tensors.items()}
                assert {k: t.name for k, t in planned.types.items()} == expected, mix.name
                if name == "llama":
                    assert_no_worse(planned, theirs, tmp_path / "ours.gguf")


def test_all_types_of_llama_cpp_are_known() -> None:
    package = find_spec("llama_cpp")
    assert package is not None
    assert package.origin is not None
    constants = Path(package.origin).with_name("llama_cpp.py").read_text(encoding="utf-8")
    found = re.findall(r"^LLAMA_FTYPE_(?:MOSTLY|ALL)_(\w+) = (\d+)$", constants, re.MULTILINE)
    assert len(found) > 35
    numbers = {mix.file_type for mix in MIXES.values()}
    missing = {name for name, number in found if int(number) not in numbers}
    assert missing == {"NVFP4"}  # llama.cpp's quantizer refuses it


@pytest.mark.parametrize("name", ["Q1_0", "Q2_0"])
def test_files_run_here_and_there(name: str, tmp_path: Path) -> None:
    """Both engines give nearly the same logits, of both files; llama.cpp's inputs have 8 bits."""
    source = write_model(tmp_path / "model.gguf", layers=2, scale=WIDTH**-0.5)
    with GgufLoader(source) as loader:
        plan(loader, MIXES[name]).write(tmp_path / "ours.gguf")
    arguments = [str(source), json.dumps([(str(tmp_path / "theirs.gguf"), MIXES[name].file_type)])]
    subprocess.run([sys.executable, "-c", WORKER, *arguments], check=True)
    files, ids = ["ours", "theirs"], list(range(1, VOCABULARY, 3))
    jobs = [
        {"model": str(tmp_path / f"{file}.gguf"), "out": str(tmp_path / f"{file}.npy")}
        | {"ids": ids, "context": CONTEXT, "want": "logits", "width": VOCABULARY}
        for file in files
    ]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    worker = Path(__file__).with_name("llama_cpp_logits_worker.py")
    subprocess.run([sys.executable, worker, tmp_path / "jobs.json"], check=True)
    for file in files:
        expected = np.load(tmp_path / f"{file}.npy")
        with GgufLoader(tmp_path / f"{file}.gguf") as model:
            found = Runner(build_graph(model, CONTEXT), model, positions=CONTEXT).run(ids)
        assert np.linalg.norm(found - expected) < 0.05 * np.linalg.norm(expected), file


def test_errors_with_importance(tmp_path: Path) -> None:
    """The squared error, each weight's as much as its column counts, is not above llama.cpp's."""
    source = write_model(tmp_path / "model.gguf", layers=9)
    rng = np.random.default_rng(4)
    with GgufLoader(source) as loader:
        known = {
            name: rng.lognormal(0, 1.5, tensor.shape[-1]).astype("f4")
            for name, tensor in loader.tensors.items()
            if name.startswith("blk") and len(tensor.shape) > 1
        }
        np.savez(tmp_path / "importance.npz", **known)
        names = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q2_K_S", "Q3_K_M", "Q4_K_M", "Q5_K_S"]
        few, grids = ["Q1_0", "Q2_0"], [m for m in MIXES if m.startswith(("IQ1", "IQ2", "IQ3"))]
        mixes = [MIXES[name] for name in [*names, "Q6_K", "IQ4_NL", "IQ4_XS", *few, *grids]]
        jobs = [(str(tmp_path / f"{mix.name}.gguf"), mix.file_type) for mix in mixes]
        arguments = [str(source), json.dumps(jobs), str(tmp_path / "importance.npz")]
        subprocess.run([sys.executable, "-c", WORKER, *arguments], check=True)
        means = {name: values.reshape(1, -1) for name, values in known.items()}
        imatrix = ImportanceMatrix(tmp_path / "importance", means)
        for mix in mixes:
            planned = plan(loader, mix, imatrix=imatrix)
            planned.write(tmp_path / "ours.gguf")
            with (
                GgufLoader(tmp_path / f"{mix.name}.gguf") as theirs,
                GgufLoader(tmp_path / "ours.gguf") as ours,
            ):
                expected = {key: tensor.type.name for key, tensor in theirs.tensors.items()}
                assert {k: t.name for k, t in planned.types.items()} == expected, mix.name
                for key, counts in known.items():
                    found = [weighted_error(loader, other, key, counts) for other in (ours, theirs)]
                    assert found[0] <= 1.0001 * found[1], (mix.name, key, found[0] / found[1])


@pytest.mark.parametrize("name", [name for name in MODELS if "eighty layers" not in name])
def test_types_with_importance(name: str, tmp_path: Path) -> None:
    """llama.cpp says in a dry run which types it would write."""
    source = write_model(tmp_path / "model.gguf", **MODELS[name])
    mixes = [mix for mix in MIXES.values() if mix.name.startswith(("IQ", "Q2_K"))]
    own_rules = has_own_mix_rules(MODELS[name].get("architecture", ""))
    with GgufLoader(source) as loader:
        known = {
            key: np.ones(tensor.shape[-1] * (tensor.shape[0] if len(tensor.shape) > 2 else 1), "f4")
            for key, tensor in loader.tensors.items()
            if len(tensor.shape) > 1
        }
        np.savez(tmp_path / "importance.npz", **known)
        jobs = [(str(tmp_path / mix.name), mix.file_type) for mix in mixes]
        arguments = [str(source), json.dumps(jobs), str(tmp_path / "importance.npz"), "dry"]
        done = subprocess.run(
            [sys.executable, "-c", WORKER, *arguments], check=True, capture_output=True, text=True
        )
        means = {key: values.reshape(1, -1) for key, values in known.items()}
        imatrix = ImportanceMatrix(tmp_path / "importance", means)
        said = done.stdout.split("\f")
        for mix, log in zip(mixes, said, strict=False):
            expected = dict(re.findall(r"\] +(\S+) .*->.*\((\w+)\)", log))
            assert len(expected) > 20, log
            types = plan(loader, mix, imatrix=imatrix, own_rules=own_rules).types
            found = {key: types[key].name.lower() for key in expected}
            assert found == {key: kind.lower() for key, kind in expected.items()}, mix.name


def weighted_error(source: GgufLoader, other: GgufLoader, name: str, counts: np.ndarray) -> float:
    values = [decode(t.data, t.type, t.shape) for t in (source.tensors[name], other.tensors[name])]
    return float((np.square(values[0] - values[1], dtype="f8") * counts).sum())


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
