"""GgufLoader: metadata, tensors and the life of their views."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import pytest

from ingot.errors import GgufError
from ingot.gguf import GgufLoader, StringArray


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "a", "é"])
    writer.add_array("tokenizer.ggml.scores", [0.5, -1.0, 2.0])
    writer.add_tensor("a.weight", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("b.weight", np.arange(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_and_tensors(model: Path) -> None:
    with GgufLoader(model) as loader:
        assert loader.version == 3
        assert loader.metadata["general.architecture"] == "llama"
        assert loader.metadata.integer("llama.block_count") == 2
        assert loader.metadata.number("llama.rope.freq_base") == 10000.0
        assert loader.metadata.boolean("tokenizer.ggml.add_bos_token") is True
        assert list(loader.metadata.strings("tokenizer.ggml.tokens")) == ["<s>", "a", "é"]
        assert loader.metadata.array("tokenizer.ggml.scores").tolist() == [0.5, -1.0, 2.0]
        assert list(loader.tensors) == ["a.weight", "b.weight"]
        tensor = loader.tensors["a.weight"]
        assert (tensor.type.name, tensor.shape, tensor.nbytes) == ("F32", (3, 4), 48)
        assert tensor.data.view(np.float32).tolist() == list(range(12))


def test_a_view_is_made_once_and_cannot_be_written(model: Path) -> None:
    tensor = GgufLoader(model).tensors["a.weight"]
    with ThreadPoolExecutor(8) as pool:
        views = list(pool.map(lambda _: tensor.data, range(8)))
    assert all(view is views[0] for view in views)
    assert not views[0].flags.writeable


def test_views_outlive_the_loader(model: Path) -> None:
    with GgufLoader(model) as loader:
        view = loader.tensors["a.weight"].data
        tokens = loader.metadata["tokenizer.ggml.tokens"]
    assert view.view(np.float32)[11] == 11
    assert isinstance(tokens, StringArray)
    assert tokens[2] == "é"
    with pytest.raises(GgufError, match="closed"):
        _ = loader.tensors["b.weight"].data


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        GgufLoader(tmp_path / "absent.gguf")
