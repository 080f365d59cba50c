"""What is mutated, and which tests must notice: the quickest first, because the first failure ends
a run."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ingot"
UNIT = ROOT / "tests" / "unit"


@dataclass(frozen=True)
class Target:
    """Some modules and their tests."""

    files: tuple[Path, ...]
    tests: tuple[Path, ...]


def _tests(folder: str, *names: str) -> tuple[Path, ...]:
    return tuple(UNIT / folder / f"test_{name}.py" for name in names)


_KV_TESTS = _tests(
    "kvcache",
    "pool",
    "prefix_tree",
    "sequence_blocks",
    "cache",
    "pool_machine",
    "state_machine",
    "prefix_machine",
)

PYTHON: dict[str, Target] = {
    "sampling": Target(
        tuple(
            SOURCE / "sampling" / name
            for name in (
                "arithmetic.py",
                "candidates.py",
                "chain.py",
                "fused_tail.py",
                "logprobs.py",
                "stop.py",
                "token_sampler.py",
                "samplers/cuts.py",
                "samplers/draw.py",
                "samplers/logit_bias.py",
                "samplers/mirostat.py",
                "samplers/penalties.py",
                "samplers/reasoning_budget.py",
                "samplers/temperature.py",
            )
        ),
        _tests(
            "sampling",
            "stop",
            "samplers_cut",
            "samplers_edit",
            "samplers_draw",
            "chain",
            "logprobs",
            "reasoning_budget",
            "decoding_modes",
            "fused_tail",
        ),
    ),
    "scheduler": Target(
        (SOURCE / "engine" / "scheduler.py",),
        _tests("engine", "scheduler", "scheduler_machine", "task", "sharing", "requests", "fork"),
    ),
    "cache": Target(
        tuple(SOURCE / "kvcache" / f"{name}.py" for name in ("pool", "cache", "sequence_blocks")),
        (*_KV_TESTS, *_tests("engine", "sharing", "fork")),
    ),
    "prefix": Target((SOURCE / "kvcache" / "prefix.py",), _KV_TESTS[1:]),
}
