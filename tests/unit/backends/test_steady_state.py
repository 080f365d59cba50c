"""What the engine does not do: ask the heap in a step, copy weights, use the CPU when idle."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ingot import _native
from ingot.api import LLM
from ingot.config import child_environment
from ingot.gguf import GgmlType
from models.tiny_models import Fixture

HERE = Path(__file__).parent
TESTS = HERE.parent.parent
# Beside cache and arena: buffers of the kernels (about 10 MiB), the tokenizer, Python's objects.
ALLOWANCE = 24 << 20


def run_alone(*arguments: object, **environment: str) -> dict[str, Any]:
    """Run steady_state.py in a process of its own."""
    done = subprocess.run(
        [sys.executable, HERE / "steady_state.py", *map(str, arguments)],
        env=child_environment(PYTHONPATH=str(TESTS), **environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library that counts allocations."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("counting allocations needs a C++ compiler and glibc")
    library = tmp_path_factory.mktemp("counter") / "count_allocations.so"
    source = HERE / "count_allocations.cpp"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library


def check_allocations(counter: Path, model: Path, threads: int, *kv_types: str) -> None:
    found = run_alone("allocations", model, threads, *kv_types, LD_PRELOAD=str(counter))
    assert found.pop("Waste") == [1], "the counter is blind"
    assert found.pop("Nothing") == [0], "the counter counts itself"
    assert set(found) == set(kv_types)
    for kind, counts in found.items():
        assert len(counts["steps"]) == 100
        assert set(counts["steps"]) == {0}, f"{kind}: {counts['steps']}"
        assert set(counts["prompts"]) == {0}, f"{kind}: {counts['prompts']}"


@pytest.mark.parametrize(
    ("name", "type", "threads", "kv_types"),
    [
        ("gemma3", GgmlType.F32, 1, ["F16", "F32"]),
        ("qwen2", GgmlType.Q8_0, 3, ["BF16"]),
        ("phi2", GgmlType.F16, 1, ["F16"]),
        ("gpt2", GgmlType.F16, 3, ["F32"]),
        ("gpt-oss", GgmlType.MXFP4, 2, ["F16"]),
        ("qwen2moe", GgmlType.F32, 1, ["F16"]),
        ("mamba-falcon", GgmlType.Q8_0, 2, ["F16"]),
        ("mamba2-groups", GgmlType.F32, 1, ["F16"]),
    ],
)
def test_a_step_allocates_nothing(
    name: str, type: GgmlType, threads: int, kv_types: list[str], counter: Path, tmp_path: Path
) -> None:
    model = Fixture.load(name).write(tmp_path / "model.gguf", type)
    check_allocations(counter, model, threads, *kv_types)


def test_a_step_of_a_real_model_allocates_nothing(smollm2_path: Path, counter: Path) -> None:
    check_allocations(counter, smollm2_path, 1, "Q8_0")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("model", ["smollm2_path", "gemma_path"])
def test_private_memory_is_cache_and_arena(model: str, request: pytest.FixtureRequest) -> None:
    """The weights stay in the file, however much of it was read."""
    path: Path = request.getfixturevalue(model)
    found = run_alone("memory", path, "map")
    bound = found["cache"] + found["arena"] + ALLOWANCE
    assert found["anonymous"] <= bound, found
    assert found["dirty"] <= bound, found
    assert found["mapped"]
    assert found["copied"] == 0
    assert bound < path.stat().st_size, "too small a model to show anything"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.skipif(
    _native.instruction_sets()[-1] not in {"avxvnni", "avx512vnni"},
    reason="this CPU repacks nothing, or not all types, or reads the file for prompts, too",
)
def test_repacked_weights_are_in_memory_once(gemma_path: Path) -> None:
    """Copies take the memory that was announced, and the pages of the file are given back."""
    found = run_alone("memory", gemma_path, "repack")
    kept = found["cache"] + found["arena"] + found["repacked"]
    assert 0 < found["repacked"] < gemma_path.stat().st_size
    assert found["anonymous"] <= kept + ALLOWANCE, found
    assert found["resident"] <= found["anonymous"] + found["repacked"] // 4, found


def used_in_half_a_second() -> float:
    """Seconds of the CPU that this process uses."""
    before = time.process_time()
    time.sleep(0.5)
    return time.process_time() - before


def test_an_idle_engine_uses_no_cpu(tmp_path: Path) -> None:
    """After a text its threads park. One that spins would use all of every half second."""
    with LLM(Fixture.load("llama").write(tmp_path / "model.gguf"), threads=3) as llm:
        llm.generate([1, 2, 3], max_tokens=10, temperature=0)
        assert any(used_in_half_a_second() < 0.1 for _ in range(20))
        assert llm.generate(
            [1, 2, 3], max_tokens=3, temperature=0
        ).token_ids  # and it wakes up again
