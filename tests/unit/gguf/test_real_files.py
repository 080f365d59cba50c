"""Real models, value by value, beside the `gguf` package's reader."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from ingot.gguf import GgufLoader, StringArray, ValueType

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("model", ["gemma_path", "smollm2_path"])
def test_same_as_the_gguf_package(model: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(model)
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
