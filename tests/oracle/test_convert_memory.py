"""Conversion needs little memory whatever the size of a checkpoint.

A process converts a checkpoint of 350 MB, whose largest tensor has 131 MB. What it allocates is
limited by the system (RLIMIT_DATA: the heap and private memory, not mapped files), so a copy of a
tensor, or of the model, ends it with an error. Its largest resident size, with the mapped pages
of the checkpoint, must stay below a third of the size of the checkpoint, too.
"""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(sys.platform != "linux", reason="limits and sizes are those of Linux"),
]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MOST = 64 << 20  # bytes that the conversion may allocate; it took less than 16 MB
CONVERT = """
import resource, sys
from pathlib import Path
from ingot.convert.conversion import plan

def size(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key + ":"))

folder, out, kind, most = sys.argv[1:]
conversion = plan(Path(folder), kind)
limit = size("VmData") + int(most)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
conversion.write(Path(out))
print(size("VmHWM"))
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        size = import_module("bench_convert").write_checkpoint(folder, 350e6)
    assert size > 300e6
    return folder


def converted(folder: Path, out: Path, kind: str, most: int) -> "subprocess.CompletedProcess[str]":
    arguments = [str(folder), str(out), kind, str(most)]
    return subprocess.run(
        [sys.executable, "-c", CONVERT, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("kind", ["bf16", "f16", "q8_0", "q4_k_m"])
def test_memory_stays_far_below_the_size(kind: str, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.gguf"
    done = converted(checkpoint, out, kind, MOST)
    assert done.returncode == 0, done.stderr
    size = sum(path.stat().st_size for path in checkpoint.glob("*.safetensors"))
    assert int(done.stdout) < size / 3
    assert out.stat().st_size > size / 4


def test_the_limit_is_one(checkpoint: Path, tmp_path: Path) -> None:
    """The same program with less room fails, so the limit above says something."""
    done = converted(checkpoint, tmp_path / "model.gguf", "f16", 1 << 20)
    assert done.returncode != 0
