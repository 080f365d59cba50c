"""The float32 reference against `transformers`, which reads both real files in its own way."""

from pathlib import Path

import numpy as np
import pytest

from ingot.backends.reference import Reference
from ingot.gguf import GgufLoader
from ingot.models import build_graph
from ingot.tokenizer import Tokenizer

TEXT = (
    "The history of the city begins with a small harbour, where ships from the north were loaded "
    "with salt. In 1284 it had three streets, one church and a wall of oak."
)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["smollm2_path", "gemma_path"])
def test_logits(name: str, request: pytest.FixtureRequest) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    path: Path = request.getfixturevalue(name).resolve()
    with GgufLoader(path) as file:
        ids = Tokenizer.from_metadata(file.metadata).encode(TEXT)
        found = Reference(build_graph(file), file).forward(ids)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-3
    assert np.abs(expected).max() > 10
