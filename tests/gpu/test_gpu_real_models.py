"""Real models on the GPU beside the CPU: the same texts, and logits near the reference.

The golden tests run here, too. A text may part from the CPU's where two tokens are nearly as likely
to the CPU: less than NEAR apart.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from golden.test_golden import FILES, test_agrees_with_llama_cpp, test_writes_the_same_texts
from ingot import _native
from ingot.api import LLM
from ingot.backends.gpu import find_device
from ingot.backends.reference import Reference
from run_batches import using_isa

if find_device().interpreted:
    pytest.skip("minutes for a token in the interpreter", allow_module_level=True)

__all__ = ["test_agrees_with_llama_cpp", "test_writes_the_same_texts"]

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
SAME = 0.95  # of the texts
# In units of the logits' size: root mean square and largest difference from the reference, and
# between two tokens of which either may be chosen.
USUAL, LARGEST, NEAR = 3e-3, 3e-2, 1e-2
# Prompts on AMX are rounded to BF16: to 8 bits, three fewer than on the GPU.
EXACT = [name for name in _native.instruction_sets() if name != "amx"][-1]


@pytest.fixture(scope="module", params=FILES)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def path(model: str, request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(f"{model}_path")
    return found


@pytest.fixture(scope="module")
def gpu(path: Path) -> Iterator[LLM]:
    with LLM(path, context=512, device="cuda") as llm:
        yield llm


@pytest.fixture
def llm(gpu: LLM) -> Iterator[LLM]:
    """For the golden tests."""
    with using_isa(EXACT):
        yield gpu


@pytest.fixture(scope="module")
def texts(gpu: LLM) -> list[list[int]]:
    """What the GPU writes behind the prompts, all at once."""
    return write(gpu, PROMPTS)


def write(llm: LLM, prompts: list[str]) -> list[list[int]]:
    requests = [
        llm.stream(prompt, max_tokens=TOKENS, temperature=0, ignore_eos=True) for prompt in prompts
    ]
    return [list(request.result().token_ids) for request in requests]


def distance(cpu: LLM, prompt: str, ours: list[int], theirs: list[int]) -> float:
    """How far the first two tokens that differ are apart for the CPU; 0 if none does."""
    if ours == theirs:
        return 0.0
    at = next(at for at, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
    row = cpu.logits([*cpu.tokenize(prompt), *ours[:at]])[-1]
    return float(abs(row[ours[at]] - row[theirs[at]]) / np.sqrt((row**2).mean()))


def test_greedy_texts(
    path: Path, model: str, texts: list[list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    with using_isa(EXACT), LLM(path, context=512) as cpu:
        written = write(cpu, PROMPTS)
        distances = [
            distance(cpu, prompt, ours, theirs)
            for prompt, ours, theirs in zip(PROMPTS, written, texts, strict=True)
        ]
    equal = sum(ours == theirs for ours, theirs in zip(written, texts, strict=True))
    near = sum(far < NEAR for far in distances)
    with capsys.disabled():
        apart = ", ".join(f"{far:.4f}" for far in sorted(distances) if far) or "none"
        print(
            f"\n{model}: {equal} of {len(texts)} texts of {TOKENS} tokens as on the CPU ({EXACT})"
        )
        print(f"distances of the tokens at which the others part: {apart}")
    assert near >= SAME * len(texts)


def test_logits(gpu: LLM) -> None:
    """Near the float32 reference at every position."""
    ids = gpu.tokenize("The quick brown fox jumps over the lazy dog and runs into the woods.")
    expected, found = Reference(gpu.graph, gpu.file).forward(ids), gpu.logits(ids)
    size = np.sqrt((expected**2).mean())
    assert np.abs(found - expected).max() / size < LARGEST
    assert np.sqrt(((found - expected) ** 2).mean()) / size < USUAL


def test_texts_do_not_change_with_company(gpu: LLM, texts: list[list[int]]) -> None:
    for prompt, together in zip(PROMPTS[:2], texts[:2], strict=True):
        assert write(gpu, [prompt]) == [together]
