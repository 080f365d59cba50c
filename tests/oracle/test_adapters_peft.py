"""LoRA adapters of tiny models beside PEFT and llama.cpp: the same logits for all modules."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from checkpoints import TOKENIZER
from ingot import LLM
from ingot.adapters.gguf_adapter import read_gguf_adapter, write_gguf_adapter
from ingot.adapters.peft import read_peft_adapter
from ingot.cli import app
from ingot.convert import open_model
from ingot.convert.conversion import plan
from ingot.models import build_graph
from models.recipes import RECIPES
from models.text_runner import TextRunner
from models.tiny_models import VOCABULARY
from run_batches import GENERATION

# PEFT warns about tied matrices, and about what it saves besides the adapter.
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore::UserWarning")]

peft = pytest.importorskip("peft")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORKER = Path(__file__).with_name("llama_cpp_logits_worker.py")
IDS = [3, 17, 42, 5, 9, 11, 60, 2]
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
DENSE = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
MODELS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "llama": ("Llama", SIZES, DENSE),
    "llama-tied": ("Llama", SIZES | {"tie_word_embeddings": True}, DENSE),
    "qwen2": ("Qwen2", SIZES, DENSE),
    "qwen3": ("Qwen3", SIZES | {"head_dim": 16}, DENSE),
    "gemma2": ("Gemma2", SIZES | {"head_dim": 16, "query_pre_attn_scalar": 16}, DENSE),
    "phi3": (
        "Phi3",
        SIZES | {"pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 2},
        ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
    ),
    "gpt2": (
        "GPT2",
        {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128},
        ["c_attn", "c_proj", "c_fc"],
    ),
    "qwen35": (
        "Qwen3_5",
        {
            **SIZES,
            "head_dim": 16,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 6,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
                "mrope_section": [2, 1, 1],
            },
        },
        [*DENSE, "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"],
    ),
    "gptneox": (
        "GPTNeoX",
        {**SIZES, "num_key_value_heads": None},
        ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"],
    ),
}


MIXTURES: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "mixtral": ("Mixtral", SIZES | {"num_local_experts": 4}, DENSE[:4]),
    "qwen3moe": (
        "Qwen3Moe",
        SIZES
        | {"head_dim": 16, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 48}
        | {"norm_topk_prob": True},  # as in all published models
        DENSE[:4],
    ),
    "qwen2moe": (
        "Qwen2Moe",
        SIZES
        | {"num_experts": 6, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 80},
        [*DENSE, "shared_expert_gate"],  # the shared expert is an MLP
    ),
    "olmoe": (
        "Olmoe",
        SIZES  # llama.cpp knows as many key heads as heads
        | {"num_experts": 6, "num_experts_per_tok": 2, "eos_token_id": 2, "num_key_value_heads": 4},
        DENSE[:4],
    ),
}


def base_model(name: str, folder: Path) -> Any:
    """A tiny model with random weights, saved with a tokenizer."""
    kind, sizes, _ = (MODELS | MORE_MIXTURES)[name]
    torch.manual_seed(0)
    head = getattr(transformers, "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM")
    model = head(head.config_class(**{k: v for k, v in sizes.items() if v})).eval()
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return model


def adapted(model: Any, folder: Path, targets: list[str], **options: Any) -> Any:
    """The model with a random adapter, which is saved."""
    torch.manual_seed(1)
    settings = {"r": 5, "lora_alpha": 12, "init_lora_weights": False} | options
    made = peft.get_peft_model(
        model, peft.LoraConfig(**{"task_type": "CAUSAL_LM", "target_modules": targets} | settings)
    ).eval()
    made.save_pretrained(folder)
    return made


def logits_of(model: Any) -> np.ndarray:
    with torch.no_grad():
        found: np.ndarray = model(torch.tensor([IDS])).logits[0].float().numpy()
    return found


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, atol=2e-3 * np.abs(wanted).max())


# Latents, states, attention beside states, streams: the tiny models of tests/models. Ingot refuses
# `kv_b_proj` of latents, PEFT the last matrix of Mamba's mixers. An adapter of Mamba's `dt_proj`
# changes nothing in `transformers`, which multiplies with its weight itself.
LATENT = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"]
SPECIAL: dict[str, list[str]] = {
    "deepseek2": LATENT,
    "deepseek2-v3": LATENT,
    "mistral4": LATENT,
    "mamba": ["in_proj", "x_proj"],
    "mamba2": ["in_proj"],
    "granitehybrid": [*DENSE[:4], "in_proj", "input_linear", "output_linear"],
    "granitehybrid-dense": [*DENSE[:4], "in_proj", "input_linear", "output_linear"],
    "gemma3n": [
        *DENSE,
        *("per_layer_input_gate", "per_layer_projection", "per_layer_model_projection"),
        *("linear_left", "linear_right", "modality_router"),
    ],
}


def special_model(name: str, folder: Path) -> Any:
    """The model of a recipe, saved with a tokenizer."""
    from models.make_fixtures import filled_model  # noqa: PLC0415 (imports torch)

    model, _ = filled_model(RECIPES[name])
    model.float().save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return model


@pytest.mark.parametrize("name", [*MODELS, *SPECIAL])
def test_logits_of_all_target_modules(name: str, tmp_path: Path) -> None:
    base, folder = tmp_path / "base", tmp_path / "adapter"
    model = special_model(name, base) if name in SPECIAL else base_model(name, base)
    plain = logits_of(model)
    made = adapted(model, folder, SPECIAL[name] if name in SPECIAL else MODELS[name][2])
    wanted = logits_of(made)
    assert np.abs(wanted - plain).max() > 1e-2 * np.abs(plain).max()
    with LLM(base, threads=1, precision="exact", kv_type="f32", adapters={"it": folder}) as llm:
        close(llm.logits(IDS), plain)
        close(llm.logits(IDS, adapter="it"), wanted)
        adapter, file = llm.engine.model.read_adapter(folder), tmp_path / "it.gguf"
        architecture = llm.file.metadata.string("general.architecture")
        write_gguf_adapter(adapter, architecture, file, name="it")
        llm.add_adapter("file", file)
        close(llm.logits(IDS, adapter="file"), wanted)


@pytest.mark.parametrize("router", [False, True])
@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_of_experts(name: str, router: bool, tmp_path: Path) -> None:
    """Attention, shared experts, and the router, whose matrix PEFT takes as a parameter."""
    base, folder = tmp_path / "base", tmp_path / "adapter"
    model = base_model(name, base)
    plain = logits_of(model)
    targets = [] if router else MIXTURES[name][2]
    parameters = ["mlp.gate.weight"] if router else []
    made = adapted(model, folder, targets, target_parameters=parameters)
    wanted = logits_of(made)
    assert np.abs(wanted - plain).max() > 1e-2 * np.abs(plain).max()
    with LLM(base, threads=1, precision="exact", kv_type="f32", adapters={"it": folder}) as llm:
        close(llm.logits(IDS), plain)
        close(llm.logits(IDS, adapter="it"), wanted)


EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
# Experts whose matrices are stored with inputs as rows, and whose gates and ups alternate; experts
# whose modules have other names than their tensors in a file.
MORE_MIXTURES: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "gpt-oss": (
        "GptOss",
        SIZES | {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
        EXPERTS,
    ),
    "granitemoe": (
        "GraniteMoe",
        SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2},
        ["block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.down_proj"],
    ),
    "lfm2moe": (
        "Lfm2Moe",
        SIZES
        | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
        | {"num_dense_layers": 1, "layer_types": ["conv", "full_attention"]},
        ["feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"],
    ),
    **{name: (kind, sizes, EXPERTS) for name, (kind, sizes, _) in MIXTURES.items()},
}


@pytest.mark.parametrize("only", [None, 0, 1])
@pytest.mark.parametrize("name", MORE_MIXTURES)
def test_matrices_of_experts(name: str, only: int | None, tmp_path: Path) -> None:
    """Both parameters of the experts, or one of them, beside the attention's modules."""
    base, folder = tmp_path / "base", tmp_path / "adapter"
    model = base_model(name, base)
    plain = logits_of(model)
    parameters = MORE_MIXTURES[name][2]
    targets = ["q_proj"] if only is None else []
    chosen = parameters if only is None else [parameters[only]]
    made = adapted(model, folder, targets, target_parameters=chosen)
    wanted = logits_of(made)
    assert np.abs(wanted - plain).max() > 1e-2 * np.abs(plain).max()
    with LLM(base, threads=2, precision="exact", kv_type="f32", adapters={"it": folder}) as llm:
        close(llm.logits(IDS), plain)
        close(llm.logits(IDS, adapter="it"), wanted)
        adapter, file = llm.engine.model.read_adapter(folder), tmp_path / "it.gguf"
        architecture = llm.file.metadata.string("general.architecture")
        write_gguf_adapter(adapter, architecture, file, name="it")
        llm.add_adapter("file", file)
        close(llm.logits(IDS, adapter="file"), wanted)


@pytest.mark.filterwarnings("ignore:The following:RuntimeWarning")  # PEFT looks at modules only
def test_ranks_and_scales_of_experts(tmp_path: Path) -> None:
    base, folder = tmp_path / "base", tmp_path / "adapter"
    options = {
        "rank_pattern": {"mlp.experts.down_proj": 3},
        "alpha_pattern": {r"layers\.1\.mlp\.experts\.gate_up_proj": 20},
        "use_rslora": True,
    }
    made = adapted(base_model("qwen3moe", base), folder, [], target_parameters=EXPERTS, **options)
    with LLM(base, threads=1, precision="exact", kv_type="f32", adapters={"it": folder}) as llm:
        close(llm.logits(IDS, adapter="it"), logits_of(made))


def test_experts_that_are_modules(tmp_path: Path) -> None:
    """An adapter that was trained with experts of their own gives what one of the stack does."""
    safetensors = pytest.importorskip("safetensors.numpy")
    base, folder, stack = tmp_path / "base", tmp_path / "adapter", tmp_path / "stack"
    model = base_model("qwen3moe", base)
    made = adapted(model, stack, [], target_parameters=EXPERTS[1:])
    wanted = logits_of(made)
    config = json.loads((stack / "adapter_config.json").read_text())
    tensors = {}
    for name, values in safetensors.load_file(stack / "adapter_model.safetensors").items():
        module, _, side = name.rpartition(".lora_")
        for expert in range(6):
            own = f"{module}.{expert}.down_proj.lora_{side}"
            if side == "A.weight":
                tensors[own] = values.reshape(6, 5, -1)[expert]
            else:
                tensors[own] = np.ascontiguousarray(values.reshape(-1, 5, 6)[:, :, expert])
    folder.mkdir()
    config |= {"target_parameters": None, "target_modules": ["down_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    safetensors.save_file(tensors, folder / "adapter_model.safetensors")
    with LLM(base, threads=1, precision="exact", kv_type="f32", adapters={"it": folder}) as llm:
        close(llm.logits(IDS, adapter="it"), wanted)


@pytest.mark.parametrize("target", ["embed_tokens", "lm_head"])
@pytest.mark.parametrize("name", ["llama", "llama-tied", "gemma2"])
def test_embedding_and_output(name: str, target: str, tmp_path: Path) -> None:
    base, folder = tmp_path / "base", tmp_path / "adapter"
    model = base_model(name, base)
    made = adapted(model, folder, [target])
    with LLM(base, threads=1, precision="exact", kv_type="f32", adapters={"it": folder}) as llm:
        close(llm.logits(IDS, adapter="it"), logits_of(made))


@pytest.mark.parametrize(
    "options",
    [
        {"r": 1},
        {"r": 13, "lora_alpha": 7},
        {"use_rslora": True},
        {"rank_pattern": {"q_proj": 3, "layers.1.mlp.up_proj": 9}},
        {"alpha_pattern": {"v_proj": 30, r"layers\.0\.mlp\.down_proj": 2}},
        {"layers_to_transform": [1]},
    ],
)
def test_ranks_and_scales(options: dict[str, Any], tmp_path: Path) -> None:
    base, folder = tmp_path / "base", tmp_path / "adapter"
    model = base_model("llama", base)
    wanted = logits_of(adapted(model, folder, DENSE, **options))
    with LLM(base, threads=1, precision="exact", kv_type="f32", adapters={"it": folder}) as llm:
        close(llm.logits(IDS, adapter="it"), wanted)
        file = tmp_path / "it.gguf"
        write_gguf_adapter(llm.engine.model.read_adapter(folder), "llama", file, name="it")
        llm.add_adapter("file", file)
        close(llm.logits(IDS, adapter="file"), wanted)


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="no peer: make test-peer installs it")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in MODELS),
        ("llama", {"target_modules": [*DENSE, "embed_tokens"]}),
        ("llama", {"target_modules": [*DENSE, "lm_head"]}),
        ("llama", {"use_rslora": True, "rank_pattern": {"q_proj": 3}}),
        ("llama", {"alpha_pattern": {"v_proj": 30}}),
        *((name, {"target_parameters": more[2]}) for name, more in MORE_MIXTURES.items()),
    ],
)
def test_llama_cpp_loads_a_converted_adapter(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    base, folder = tmp_path / "base", tmp_path / "adapter"
    file, adapter = tmp_path / "base.gguf", tmp_path / "it.gguf"
    targets = [] if name in MORE_MIXTURES else MODELS[name][2]
    made = adapted(base_model(name, base), folder, targets, **options)
    plan(base, "f32").write(file)
    command = ["convert", "--lora", str(folder), "--base", str(file), "-o", str(adapter)]
    assert CliRunner().invoke(app, command).exit_code == 0
    jobs = [
        {
            "model": str(file),
            "adapter": str(adapter),
            "scale": scale,
            "ids": IDS,
            "context": 256,
            "want": "logits",
            "width": VOCABULARY,
            "out": str(tmp_path / f"{scale}.npy"),
        }
        for scale in (1.0, 0.5)
    ]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    subprocess.run([sys.executable, WORKER, tmp_path / "jobs.json"], check=True)
    theirs = [np.load(job["out"]) for job in jobs]
    close(theirs[0], logits_of(made))
    with LLM(file, threads=1, precision="exact", kv_type="f32", adapters={"it": adapter}) as llm:
        for job, found in zip(jobs, theirs, strict=True):
            close(llm.logits(IDS, adapter={"it": job["scale"]}), found)


def test_the_file_is_read_by_the_gguf_package(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    base, folder, file = tmp_path / "base", tmp_path / "adapter", tmp_path / "it.gguf"
    model = base_model("llama", base)
    adapted(model, folder, [*DENSE, "embed_tokens"])
    with LLM(base, threads=1, adapters={"it": folder}) as llm:
        adapter = llm.engine.model.read_adapter(folder)
    write_gguf_adapter(adapter, "llama", file, name="it")
    reader = gguf.GGUFReader(file)
    fields = {key: reader.get_field(key).contents() for key in reader.fields if "." in key}
    assert fields["general.type"] == gguf.GGUFType.ADAPTER
    assert fields[gguf.Keys.Adapter.TYPE] == "lora"
    assert fields[gguf.Keys.Adapter.LORA_ALPHA] == 12.0
    shapes = {tensor.name: list(map(int, tensor.shape)) for tensor in reader.tensors}
    # ggml's order: the contiguous dimension first.
    assert shapes["blk.0.attn_k.weight.lora_a"] == [64, 5]
    assert shapes["blk.0.attn_k.weight.lora_b"] == [5, 32]
    assert shapes["token_embd.weight.lora_a"] == [5, VOCABULARY]
    assert shapes["token_embd.weight.lora_b"] == [5, 64]
    again = read_gguf_adapter(file, "llama")
    assert again.tensors.keys() == adapter.tensors.keys()


def test_an_encoder_decoder(tmp_path: Path) -> None:
    """Matrices of both stacks, and the keys and values that the decoder has of the prompt."""
    base, folder = tmp_path / "base", tmp_path / "adapter"
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4,
        feed_forward_proj="gated-gelu", decoder_start_token_id=0,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).eval()
    model.save_pretrained(base)
    (base / "tokenizer.json").write_text(json.dumps(TOKENIZER))

    def logits(of: Any) -> np.ndarray:
        with torch.no_grad():
            ids = torch.tensor([IDS])
            found: np.ndarray = of(input_ids=ids, decoder_input_ids=ids).logits[0].numpy()
        return found

    plain = logits(model)
    targets = ["q", "k", "v", "o", "wi_0", "wi_1", "wo"]
    wanted = logits(adapted(model, folder, targets, task_type="SEQ_2_SEQ_LM"))
    assert np.abs(wanted - plain).max() > 1e-2 * np.abs(plain).max()
    with open_model(base) as loader:
        runner = TextRunner(build_graph(loader), loader)
        runner.backend.attach(0, read_peft_adapter(folder, loader))
        close(runner.text(IDS, IDS), plain)
        uses = {"text": (0, 1.0)}
        runner.read = {"text": len(IDS)}
        runner.step({"text": IDS}, adapters=uses)
        found = runner.step({"text": IDS}, GENERATION, adapters=uses, encoded=runner.read)
    close(found["text"], wanted)
