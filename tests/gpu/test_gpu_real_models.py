"""Real models on the GPU beside the CPU: the same texts, and logits near the reference."""

from pathlib import Path

import numpy as np
import pytest

from ingot.api import LLM
from ingot.backends.gpu import find_device
from ingot.backends.reference import Reference

if find_device().interpreted:
    pytest.skip("minutes for a token in the interpreter", allow_module_level=True)

PROMPTS = [
    "The capital of France is",
    "Once upon a time",
    "def fibonacci(n):",
    "Water boils at",
    "The three primary colours are",
    "In 1969, the first",
    "A recipe for pancakes:",
    "My favourite book is",
    "The speed of light is",
    "Dear Sir or Madam,",
    "Photosynthesis is the process",
    "SELECT name FROM",
    "The largest planet",
    "To be or not to be",
    "Roses are red,",
    "The quick brown fox",
    "import numpy as np",
    "Shakespeare wrote",
    "The Pacific Ocean",
    "How to tie a knot:",
]
TOKENS = 64
AGREE = 0.95  # of the tokens


@pytest.fixture(params=["smollm2_path", "gemma_path"])
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def test_greedy_choices(path: Path) -> None:
    """After what the CPU wrote, the GPU chooses what the CPU chose next."""
    same = total = 0
    with LLM(path, context=256) as cpu, LLM(path, context=256, device="cuda") as gpu:
        for prompt in PROMPTS:
            ids = cpu.tokenize(prompt)
            written = cpu.generate(ids, max_tokens=TOKENS, temperature=0, ignore_eos=True).token_ids
            rows = gpu.logits([*ids, *written])[len(ids) - 1 : -1]
            same += int((rows.argmax(axis=1) == np.array(written)).sum())
            total += len(written)
    assert same >= AGREE * total


def test_logits(path: Path) -> None:
    """Near the float32 reference at every position."""
    with LLM(path, context=64, device="cuda") as gpu:
        ids = gpu.tokenize("The quick brown fox jumps over the lazy dog and runs into the woods.")
        expected, found = Reference(gpu.graph, gpu.model).forward(ids), gpu.logits(ids)
    size = np.sqrt((expected**2).mean())
    assert np.abs(found - expected).max() / size < 3e-2
    assert np.sqrt(((found - expected) ** 2).mean()) / size < 3e-3


def test_texts_do_not_change_with_company(path: Path) -> None:
    with LLM(path, context=256, device="cuda") as gpu:
        alone = [gpu.generate(p, max_tokens=16, temperature=0).token_ids for p in PROMPTS[:4]]
        requests = [gpu.stream(p, max_tokens=16, temperature=0) for p in PROMPTS[:4]]
        assert [request.result().token_ids for request in requests] == alone
