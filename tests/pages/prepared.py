"""What the code on a page finds where it runs: model files, adapters, models of other tools."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from models.tiny_models import Fixture
from scripted_gguf import tool_call, write_scripted_gguf
from tiny_adapters import write_random_adapter
from tiny_eagle import TinyEagle, write_target
from tiny_llama import shapes, write_tiny_llama
from unit.adapters.test_adapter_files import write_peft

Prepare = Callable[[Path], None]


def a_model(folder: Path) -> None:
    """The file that most pages open."""
    write_tiny_llama(folder / "model.gguf", keys={"llama.context_length": 4096})


def a_model_that_calls_tools(folder: Path) -> None:
    """It asks for the weather in Rome, then tells it."""
    scripts = {
        "tool: sunny in Rome": "It is sunny.",
        "warm in Rome": tool_call("get_weather", city="Rome"),
        "weather in Rome": tool_call("get_weather", city="Rome"),
    }
    write_scripted_gguf(folder / "model.gguf", scripts, context=4096)


def _engine(folder: Path) -> None:
    a_model_that_calls_tools(folder)
    write_target(folder / "Qwen3-8B-Q4_K_M.gguf")
    TinyEagle().write(folder / "Qwen3-8B-EAGLE3.gguf")


def _adapters(folder: Path) -> None:
    a_model(folder)
    for name in ("pirate", "sql"):
        write_random_adapter(folder / f"{name}.gguf")
    place = "base_model.model.model.layers.1.mlp.down_proj"
    rows, columns = shapes()["blk.1.ffn_down.weight"]
    low = {
        f"{place}.lora_A.weight": np.full((4, columns), 0.1, np.float32),
        f"{place}.lora_B.weight": np.full((rows, 4), 0.1, np.float32),
    }
    write_peft(folder / "peft-folder", tensors=low)


def _models(folder: Path) -> None:
    Fixture.load("t5").write(folder / "flan-t5-base-Q8_0.gguf")
    Fixture.load("bert-rank").write(folder / "bge-reranker.gguf")
    model = write_tiny_llama(folder / "tiny.gguf").read_bytes()
    digest = hashlib.sha256(model).hexdigest()
    hub = folder / "hub" / "models--Qwen--Qwen3-4B-GGUF"
    ollama = folder / "ollama"
    layer = {
        "mediaType": "application/vnd.ollama.image.model",
        "digest": f"sha256:{digest}",
        "size": len(model),
    }
    for path, content in {
        hub / "refs/main": b"0" * 40,
        hub / "snapshots" / ("0" * 40) / "Qwen3-4B-Q4_K_M.gguf": model,
        ollama / "blobs" / f"sha256-{digest}": model,
        ollama / "manifests/registry.ollama.ai/library/llama3.2/3b": json.dumps(
            {"schemaVersion": 2, "layers": [layer]}
        ).encode(),
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _server(folder: Path) -> None:
    write_scripted_gguf(folder / "model.gguf", {"sky": "It scatters blue light."}, context=4096)
    request = {
        "custom_id": "1",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "any", "messages": [{"role": "user", "content": "hi"}]},
    }
    (folder / "requests.jsonl").write_text(json.dumps(request))


PREPARED: Mapping[str, Prepare] = {
    "README.md": a_model,
    "docs/adapters.md": _adapters,
    "docs/engine.md": _engine,
    "docs/index.md": a_model,
    "docs/migration.md": a_model_that_calls_tools,
    "docs/models.md": _models,
    "docs/sampling.md": a_model,
    "docs/server.md": _server,
    "docs/tutorial.md": a_model,
}
SERVED = {"docs/migration.md", "docs/server.md"}  # their clients find a server with model.gguf
