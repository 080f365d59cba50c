"""Files that somebody changes while they are open: nothing dies, and `change` tells of it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ingot.errors import ModelChangedError
from ingot.gguf import GgufLoader, GgufWriter, MmapGguf, ValueType

PAGE = 4096


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(1 + place % 255 for place in range(4 * PAGE)))
    return path


def write_model(path: Path, fill: int = 1) -> Path:
    writer = GgufWriter(path)
    writer.add("words", ["one", "two"], ValueType.STRING)
    writer.add("numbers", [1, 2, 3], ValueType.INT32)
    writer.add_tensor("t", np.full(8 * PAGE, fill, np.int8))
    return writer.write()[0]


def write_in_place(path: Path, data: bytes) -> None:
    with path.open("r+b") as opened:
        opened.write(data)
    # Later than the clock of the file system can miss.
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))


def test_pages_that_a_file_lost_read_as_zeros(file: Path) -> None:
    source = MmapGguf(file)
    view = source.get_slice(0, source.size)
    assert source.change is None
    os.truncate(file, PAGE + 10)
    assert view[3 * PAGE + 5] == 0
    assert view[2 * PAGE + 5] == 0
    assert view[PAGE + 5] == 1 + (PAGE + 5) % 255  # what the file still has
    assert view[PAGE + 11] == 0
    assert source.change == f"became shorter while it was in use ({PAGE + 10} of {4 * PAGE} bytes)"


def test_what_was_read_of_a_lost_page_stays_suspect(file: Path) -> None:
    source = MmapGguf(file)
    view, before = source.get_slice(0, source.size), file.stat()
    data = file.read_bytes()
    os.truncate(file, 0)
    assert view[0] == 0
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as if nothing had been
    assert source.change is not None
    assert "could not be read" in source.change


def test_locked_pages_can_be_lost_too(file: Path) -> None:
    source = MmapGguf(file)
    source.lock()
    view = source.get_slice(0, source.size)
    os.truncate(file, 0)
    assert not view.any()
    assert source.change is not None


def test_a_file_that_is_written_to(file: Path) -> None:
    source = MmapGguf(file)
    write_in_place(file, b"other")
    assert source.change == "was written to while it was in use"


def test_a_file_that_grows(file: Path) -> None:
    source = MmapGguf(file)
    with file.open("ab") as opened:
        opened.write(b"more")
    assert source.change == "was written to while it was in use"


def test_another_file_in_its_place_is_no_change(file: Path) -> None:
    source = MmapGguf(file)
    view = source.get_slice(0, 4)
    assert not source.is_replaced
    beside = file.with_suffix(".new")
    beside.write_bytes(b"other")
    beside.rename(file)
    assert source.change is None
    assert source.is_replaced
    assert view.tobytes() == bytes([1, 2, 3, 4])
    file.unlink()
    assert not source.is_replaced  # there is nothing to open in its place


def test_other_attributes_are_no_change(file: Path) -> None:
    source = MmapGguf(file)
    file.chmod(0o600)
    file.rename(file.with_suffix(".moved"))
    assert source.change is None


@pytest.mark.parametrize("mapped", [True, False])
def test_metadata_are_copied_at_opening(tmp_path: Path, mapped: bool) -> None:
    path = write_model(tmp_path / "model.gguf")
    loader = GgufLoader(path, mapped=mapped)
    words, numbers = loader.metadata.strings("words"), loader.metadata.array("numbers")
    write_in_place(path, b"\xff" * 400)
    os.truncate(path, 0)
    assert list(words) == ["one", "two"]
    assert loader.metadata["words"][1] == "two"
    assert numbers.tolist() == [1, 2, 3]
    assert not numbers.flags.writeable


def test_the_error_says_what_to_do(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf")
    loader = GgufLoader(path)
    loader.check()
    write_in_place(path, b"GGUF")
    with pytest.raises(ModelChangedError, match=r"model\.gguf was written to.*open the model"):
        loader.check()


def test_any_part_of_a_split_model(tmp_path: Path) -> None:
    writer = GgufWriter(tmp_path / "model.gguf", max_tensors=1)
    for number in range(2):
        writer.add_tensor(f"t{number}", np.ones(2 * PAGE, np.int8))
    paths = writer.write()
    loader = GgufLoader(paths[0])
    assert loader.change is None
    view = loader.tensors["t1"].data
    os.truncate(paths[1], 0)
    assert not view.any()
    assert loader.change is not None
    assert loader.change.startswith(f"{paths[1]} became shorter")


# A bus error of somebody else's: in a map that is not ours, or sent with `kill`.
OTHERS = """
import faulthandler, mmap, os, resource, signal, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
folder, before, event = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if before == "faulthandler":
    faulthandler.enable()
elif before == "handler":
    signal.signal(signal.SIGBUS, lambda *_: print("handled", flush=True))
elif before == "ignored":
    signal.signal(signal.SIGBUS, signal.SIG_IGN)
from ingot.gguf import MmapGguf
for name in ("ours", "other"):
    (folder / name).write_bytes(b"x" * 8192)
ours = MmapGguf(folder / "ours")
with open(folder / "other") as opened:
    other = mmap.mmap(opened.fileno(), 8192, access=mmap.ACCESS_READ)
os.truncate(folder / "ours", 0)
assert ours.get_slice(5000, 1)[0] == 0
if event == "fault":
    os.truncate(folder / "other", 0)
    other[5000]
else:
    os.kill(os.getpid(), signal.SIGBUS)
print("alive", flush=True)
"""


@pytest.mark.parametrize(
    ("before", "event", "status", "message"),
    [
        ("nothing", "fault", -signal.SIGBUS, ""),
        ("nothing", "kill", -signal.SIGBUS, ""),
        ("faulthandler", "fault", -signal.SIGBUS, "Bus error"),
        ("handler", "kill", 0, "handled"),
        ("ignored", "fault", -signal.SIGBUS, ""),
        ("ignored", "kill", 0, "alive"),
    ],
)
def test_other_bus_errors_end_as_before(
    before: str, event: str, status: int, message: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", OTHERS, str(tmp_path), before, event]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stderr
    assert message in done.stdout + done.stderr
    assert ("alive" in done.stdout) == (status == 0)


def test_many_maps_come_and_go(file: Path) -> None:
    """Each map has its own flag, also one at the address of an earlier one."""
    for _ in range(3):
        maps = [MmapGguf(file) for _ in range(40)]
        views = [source.get_slice(0, source.size) for source in maps]
        data = file.read_bytes()
        os.truncate(file, 0)
        assert views[7][0] == 0
        assert [source._map is not None and source._map.is_damaged for source in maps] == [
            index == 7 for index in range(40)
        ]
        file.write_bytes(data)
