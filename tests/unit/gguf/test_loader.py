"""GgufLoader: what is read, when, how often, and by how many threads."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import pytest

from ingot.errors import GgufError
from ingot.gguf import CacheCounts, GgufLoader, LazyTensor, StringArray, TensorState


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


class Device:
    """A backend that copies, and remembers what it was asked for."""

    def __init__(self, name: str = "device") -> None:
        self.name = name
        self.uploaded: list[str] = []

    def upload(self, tensor: LazyTensor) -> bytes:
        self.uploaded.append(tensor.name)
        return tensor.data.tobytes()


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


def test_opening_loads_no_tensor(model: Path) -> None:
    loader = GgufLoader(model)
    assert {tensor.state for tensor in loader.tensors.values()} == {TensorState.UNLOADED}
    assert not loader.is_tensor_loaded("a.weight")


def test_loading_one_tensor_loads_no_other(model: Path) -> None:
    loader = GgufLoader(model)
    view = loader.load_tensor("a.weight")
    assert view.view(np.float32).tolist() == list(range(12))
    assert not view.flags.writeable
    assert loader.tensors["a.weight"].state is TensorState.MAPPED
    assert loader.is_tensor_loaded("a.weight")
    assert not loader.is_tensor_loaded("b.weight")


def test_second_access_is_a_hit(model: Path) -> None:
    loader = GgufLoader(model)
    first = loader.load_tensor("a.weight")
    assert loader.cache == CacheCounts(hits=0, misses=1)
    assert loader.load_tensor("a.weight") is first
    assert loader.cache == CacheCounts(hits=1, misses=1)


def test_backends_keep_their_own_copy(model: Path) -> None:
    loader = GgufLoader(model)
    one, two = Device("one"), Device("two")
    uploaded = loader.load_tensor("b.weight", one)
    assert uploaded == np.arange(5, dtype=np.float16).tobytes()
    assert loader.load_tensor("b.weight", one) is uploaded
    assert loader.load_tensor("b.weight", two) == uploaded
    assert (one.uploaded, two.uploaded) == (["b.weight"], ["b.weight"])
    assert loader.tensors["b.weight"].state is TensorState.RESIDENT
    assert loader.tensors["b.weight"].devices == ("one", "two")
    assert loader.is_tensor_loaded("b.weight")
    assert loader.cache == CacheCounts(hits=1, misses=2)


def test_load_all(model: Path) -> None:
    loader = GgufLoader(model)
    device = Device()
    loader.load_tensor("b.weight", device)
    assert list(loader.load_all(device)) == ["a.weight", "b.weight"]
    assert device.uploaded == ["b.weight", "a.weight"]
    assert loader.cache == CacheCounts(hits=1, misses=2)


def test_failed_upload_is_tried_again(model: Path) -> None:
    class Unsteady(Device):
        def upload(self, tensor: LazyTensor) -> bytes:
            if not self.uploaded:
                self.uploaded.append("failed")
                raise MemoryError
            return super().upload(tensor)

    loader = GgufLoader(model)
    device = Unsteady()
    with pytest.raises(MemoryError):
        loader.load_tensor("a.weight", device)
    assert loader.tensors["a.weight"].devices == ()
    assert len(loader.load_tensor("a.weight", device)) == 48


def test_threads_load_a_tensor_once(model: Path) -> None:
    class Slow(Device):
        def upload(self, tensor: LazyTensor) -> bytes:
            threading.Event().wait(0.02)
            return super().upload(tensor)

    loader = GgufLoader(model)
    device = Slow()
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: loader.load_tensor("a.weight", device), range(8)))
    assert all(result is results[0] for result in results)
    assert device.uploaded == ["a.weight"]
    assert loader.cache == CacheCounts(hits=7, misses=1)


def test_different_tensors_load_at_the_same_time(model: Path) -> None:
    class Meeting(Device):
        """Both uploads must be under way together for either to end."""

        def __init__(self) -> None:
            super().__init__()
            self.barrier = threading.Barrier(2)

        def upload(self, tensor: LazyTensor) -> bytes:
            self.barrier.wait(timeout=300)
            return super().upload(tensor)

    loader = GgufLoader(model)
    device = Meeting()
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda n: loader.load_tensor(n, device), loader.tensors))
    assert [len(result) for result in results] == [48, 10]


def test_upload_may_read_the_bytes_in_another_thread(model: Path) -> None:
    class Delegating(Device):
        def upload(self, tensor: LazyTensor) -> bytes:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(super().upload, tensor).result(timeout=300)

    assert len(GgufLoader(model).load_tensor("a.weight", Delegating())) == 48


def test_unknown_tensor(model: Path) -> None:
    loader = GgufLoader(model)
    for use in (loader.load_tensor, loader.is_tensor_loaded):
        with pytest.raises(GgufError, match=r"c\.weight: the file has no such tensor"):
            use("c.weight")


def test_views_outlive_the_loader(model: Path) -> None:
    with GgufLoader(model) as loader:
        view = loader.load_tensor("a.weight")
        tokens = loader.metadata["tokenizer.ggml.tokens"]
    assert view.view(np.float32)[11] == 11
    assert isinstance(tokens, StringArray)
    assert tokens[2] == "é"
    with pytest.raises(GgufError, match="closed"):
        loader.load_tensor("b.weight")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        GgufLoader(tmp_path / "absent.gguf")
