"""Files are written to a draft, synced, renamed; drafts without a writer are swept."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faulty_os import PLACES
from ingot.errors import FileWriteError, IngotError
from ingot.files import Draft, FileRange, move_file, open_regular, remove_file, sweep, write_file

PATIENCE = 300


class RecordingOs:
    """`os`, with a list of the calls that change something."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._names: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        descriptor = os.open(path, flags, mode)
        self._names[descriptor] = self._name(path)
        return descriptor

    def write(self, descriptor: int, data: bytes) -> int:
        self.calls.append(f"write {self._names[descriptor]}")
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        self.calls.append(f"sync {self._names[descriptor]}")
        os.fsync(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        self.calls.append(f"rename {self._name(source)} to {self._name(target)}")
        source.replace(target)

    @staticmethod
    def _name(path: Any) -> str:
        return "draft" if Path(path).name.startswith(".ingot-draft-") else Path(path).name


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = RecordingOs()
    for place in PLACES:
        monkeypatch.setattr(place, recording)
    write_file(tmp_path / "file", [b"some", b"", b"thing"])
    assert recording.calls == [
        "write draft",
        "write draft",
        "sync draft",
        "rename draft to file",
        f"sync {tmp_path.name}",
    ]
    recording.calls.clear()
    move_file(tmp_path / "file", tmp_path / "moved")
    assert recording.calls == ["sync file", "rename file to moved", f"sync {tmp_path.name}"]
    assert (tmp_path / "moved").read_bytes() == b"something"
    recording.calls.clear()
    for _ in range(2):
        remove_file(tmp_path / "moved")
    assert recording.calls == [f"sync {tmp_path.name}"] * 2
    assert list(tmp_path.iterdir()) == []


def test_what_is_raised_while_it_is_written_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_file(target, [b"old"])

    def pieces(error: type[BaseException]) -> Iterator[bytes]:
        yield b"new"
        raise error

    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            write_file(target, pieces(error))
    with Draft(target) as draft:  # and one that is never published
        draft.write(b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_permissions(tmp_path: Path) -> None:
    ordinary, secret = tmp_path / "ordinary", tmp_path / "secret"
    (tmp_path / "plain").touch()
    write_file(ordinary, [b"1"])
    assert ordinary.stat().st_mode == (tmp_path / "plain").stat().st_mode
    write_file(secret, [b"1"], mode=0o600)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    ordinary.chmod(0o640)
    write_file(ordinary, [b"2"])
    assert stat.S_IMODE(ordinary.stat().st_mode) == 0o640


def test_the_file_that_a_link_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/file")
    for content in (b"new", b"newer"):
        write_file(tmp_path / "link", [content])
        assert (tmp_path / "folder" / "file").read_bytes() == content
    assert (tmp_path / "link").is_symlink()


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    write_file(tmp_path / ("x" * 255), [b"1"])
    with pytest.raises(FileWriteError, match="File name too long"):
        write_file(tmp_path / ("x" * 256), [b"1"])


def test_what_cannot_be_written_says_why(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path, reason in {
        tmp_path / "none" / "file": "No such file or directory",
        tmp_path / "folder": "it is not a regular file",
        tmp_path / "pipe": "it is not a regular file",
        Path("/dev/null"): "it is not a regular file",
    }.items():
        with pytest.raises(FileWriteError) as caught:
            write_file(path, [b"1"])
        assert str(caught.value) == f"{path} cannot be written: {reason}"
        assert caught.value.errno
        assert isinstance(caught.value, IngotError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]


LIMITED = """
import resource, sys
from pathlib import Path
from ingot.files import write_file
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
write_file(sys.argv[1], [bytes(600), bytes(600)])
"""


def test_a_limit_of_the_system_is_an_error_of_ours(tmp_path: Path) -> None:
    """No injection: the second write comes back short, the third fails."""
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "FileWriteError" in done.stderr
    assert done.stderr.rstrip().endswith("file cannot be written: File too large")
    assert list(tmp_path.iterdir()) == []


def draft_name(number: int, pid: int | None = None) -> str:
    return f".ingot-draft-{pid or os.getpid()}-{number:016x}"


def test_drafts_without_a_writer_are_swept_and_nothing_else(tmp_path: Path) -> None:
    for name in (draft_name(1), draft_name(2, pid=1), ".ingot-draft-x", "file", ".hidden"):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / draft_name(3)).symlink_to("file")
    (tmp_path / draft_name(4)).mkdir()
    os.mkfifo(tmp_path / draft_name(5))
    with Draft(tmp_path / "other") as draft:
        draft.write(b"whole")
        sweep(tmp_path)
        write_file(tmp_path / "another", [b"1"])  # sweeps, too
        draft.publish()
    left = {path.name for path in tmp_path.iterdir()}
    kept = {draft_name(3), draft_name(4), draft_name(5), ".ingot-draft-x", "file", ".hidden"}
    assert left == {"other", "another", *kept}
    assert (tmp_path / "other").read_bytes() == b"whole"


def test_a_folder_that_is_not_there_is_swept_in_vain(tmp_path: Path) -> None:
    (tmp_path / draft_name(1)).write_bytes(b"half")
    sweep(tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == [draft_name(1)]


def test_a_draft_that_is_swept_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweeper that comes between the two calls takes the draft for an old one."""
    locked: list[int] = []

    class Sweeping:
        LOCK_EX, LOCK_NB = fcntl.LOCK_EX, fcntl.LOCK_NB

        @staticmethod
        def flock(descriptor: int, how: int) -> None:
            locked.append(descriptor)
            if len(locked) == 1:
                sweep(tmp_path)  # which locks, and is the second call
            fcntl.flock(descriptor, how)

    monkeypatch.setattr("ingot.machine.posix.fcntl", Sweeping)
    write_file(tmp_path / "file", [b"whole"])
    assert len(locked) == 3
    assert (tmp_path / "file").read_bytes() == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_many_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(20):
            write_file(tmp_path / "file", [bytes([number]) * 500] * 4)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    content = (tmp_path / "file").read_bytes()
    assert content == content[:1] * 2000
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileWriteError, match="cannot be written: no file can have this name"):
        write_file(tmp_path / name, [b"1"])
    with pytest.raises(OSError, match="no file can have this name"):
        open_regular(tmp_path / name)


def test_only_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match="it is not a regular file"):
            open_regular(path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")
    (tmp_path / "file").write_bytes(b"content")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"content"


@pytest.mark.parametrize("system_copies", [True, False])
def test_a_part_of_a_file_is_copied(
    system_copies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = np.random.default_rng(1).bytes(3 << 20)
    (tmp_path / "source").write_bytes(content)
    if not system_copies:
        monkeypatch.setattr("ingot.files.copy_range", lambda *_: None)
    with (tmp_path / "source").open("rb") as source, Draft(tmp_path / "target") as draft:
        draft.write(b"before")
        draft.copy(FileRange(source.fileno(), 7, 2 << 20))
        draft.copy(FileRange(source.fileno(), 3, 0))
        draft.write(b"after")
        draft.publish()
    assert (tmp_path / "target").read_bytes() == b"before" + content[7 : 7 + (2 << 20)] + b"after"


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_file_systems_that_cannot_copy(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("ingot.machine.posix.os.copy_file_range", refuse)
    (tmp_path / "source").write_bytes(b"content")
    with (tmp_path / "source").open("rb") as source, Draft(tmp_path / "target") as draft:
        draft.copy(FileRange(source.fileno(), 3, 4))
        draft.publish()
    assert (tmp_path / "target").read_bytes() == b"tent"


@pytest.mark.parametrize("system_copies", [True, False])
def test_a_file_that_became_shorter_is_not_copied(
    system_copies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not system_copies:
        monkeypatch.setattr("ingot.files.copy_range", lambda *_: None)
    (tmp_path / "source").write_bytes(b"short")
    with (
        (tmp_path / "source").open("rb") as source,
        pytest.raises(FileWriteError, match="became shorter"),
        Draft(tmp_path / "target") as draft,
    ):
        draft.copy(FileRange(source.fileno(), 2, 100))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]
