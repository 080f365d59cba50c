"""MmapGguf: views of a file, and the same bytes where it cannot be mapped."""

import errno
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from fuzz.craft import Craft
from ingot import _native
from ingot.errors import GgufError, MemoryShortageError
from ingot.gguf import GgmlType, GgufLoader, GgufWriter, MmapGguf, ValueType


@pytest.fixture
def unmappable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without mmap."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(_native, "GuardedMap", refuse)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(256)) * 64)
    return path


def test_slices_share_the_map(file: Path) -> None:
    with MmapGguf(file) as mapped:
        assert mapped.is_mapped
        assert mapped.size == 256 * 64
        first, second = mapped.get_slice(10, 100), mapped.get_slice(50, 10)
    assert np.shares_memory(first, second)
    assert second.tobytes() == bytes(range(50, 60))
    assert not first.flags.writeable


def mapped_bytes(path: Path) -> int:
    """Resident bytes of all maps of a file in this process."""
    regions = Path("/proc/self/smaps").read_text().split("\nVmFlags:")
    sizes = [
        re.search(r"^Rss: +(\d+) kB", region, re.M) for region in regions if str(path) in region
    ]
    return sum(int(size[1]) << 10 for size in sizes if size)


def test_the_map_keeps_no_memory_of_a_header_that_was_copied(tmp_path: Path) -> None:
    writer = GgufWriter(tmp_path / "large.gguf")
    writer.add("tokens", ["a token"] * 200_000, ValueType.STRING)
    with GgufLoader(writer.write()[0]) as loader:
        assert loader.path.stat().st_size > 2 << 20
        assert mapped_bytes(loader.path) < 1 << 20
        assert loader.metadata.strings("tokens")[-1] == "a token"


@pytest.mark.parametrize("mapped", [True, False])
def test_released_bytes_are_read_again(file: Path, mapped: bool) -> None:
    with MmapGguf(file, mapped=mapped) as source:
        before = source.get_slice(0, source.size).tobytes()
        source.release(source.size + 1)
        assert source.get_slice(0, source.size).tobytes() == before == file.read_bytes()


@pytest.mark.parametrize("mapped", [True, False])
def test_bounds(file: Path, mapped: bool) -> None:
    source = MmapGguf(file, mapped=mapped)
    assert source.get_slice(0, source.size).tobytes() == file.read_bytes()
    assert source.get_slice(source.size, 0).size == 0
    for offset, size in [(0, source.size + 1), (source.size, 1), (-1, 1), (1, -1), (2**70, 1)]:
        with pytest.raises(GgufError) as caught:
            source.get_slice(offset, size)
        assert (caught.value.field, caught.value.offset) == ("slice", offset)


@pytest.mark.parametrize("mapped", [True, False])
def test_closed(file: Path, mapped: bool) -> None:
    source = MmapGguf(file, mapped=mapped)
    view = source.get_slice(3, 1)
    source.close()
    assert view[0] == 3
    with pytest.raises(GgufError, match="closed"):
        source.get_slice(0, 1)


def test_no_descriptor_is_left_open(file: Path) -> None:
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for mapped in (True, False):
        with MmapGguf(file, mapped=mapped) as source:
            source.get_slice(0, 16)
        del source
        MmapGguf(file, mapped=mapped).get_slice(0, 16)
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before


@pytest.mark.usefixtures("unmappable")
def test_plain_reads_with_one_warning(file: Path) -> None:
    with pytest.warns(RuntimeWarning, match="cannot be memory-mapped.*No such device") as caught:
        source = MmapGguf(file)
    view = source.get_slice(250, 10)  # warns no more, or the test would fail
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert not source.is_mapped
    assert view.tobytes() == bytes([250, 251, 252, 253, 254, 255, 0, 1, 2, 3])
    assert not view.flags.writeable


def test_file_that_shrinks_under_plain_reads(file: Path) -> None:
    source = MmapGguf(file, mapped=False)
    os.truncate(file, 100)
    with pytest.raises(GgufError, match="became shorter"):
        source.get_slice(90, 20)


def big_header() -> Craft:
    """Larger than the first plain read, so that the scan has to ask for more."""
    words = [b"%06d" % number * (number % 7) for number in range(60_000)]
    numbers = list(range(300_000))
    return (
        Craft()
        .array("words", ValueType.STRING, words)
        .array("numbers", ValueType.INT32, numbers)
        .key("after", ValueType.STRING, b"all")
        .tensor("t", [2, 3], GgmlType.F32, np.arange(6, dtype=np.float32).tobytes())
    )


def test_loader_gives_the_same_without_a_map(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(big_header().bytes())
    mapped = GgufLoader(path)
    request.getfixturevalue("unmappable")
    with pytest.warns(RuntimeWarning, match="cannot be memory-mapped"):
        read = GgufLoader(path)
    assert list(read.metadata) == list(mapped.metadata)
    assert list(read.metadata.strings("words")) == list(mapped.metadata.strings("words"))
    assert np.array_equal(read.metadata.array("numbers"), mapped.metadata.array("numbers"))
    assert read.metadata["after"] == "all"
    assert len(read.metadata.strings("words").data) < path.stat().st_size
    assert read.tensors["t"].offset == mapped.tensors["t"].offset
    assert read.tensors["t"].data.tobytes() == mapped.tensors["t"].data.tobytes()
    assert read.tensors["t"].data is read.tensors["t"].data


@pytest.mark.usefixtures("unmappable")
def test_plain_reads_stop_after_the_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    craft = big_header().tensor("large", [2**26], GgmlType.I8, b"")
    path.write_bytes(craft.bytes())
    os.truncate(path, path.stat().st_size + 2**26)  # a hole, but the reader cannot know
    preadv, sizes = os.preadv, []

    def count(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        sizes.append(preadv(descriptor, buffers, offset))
        return sizes[-1]

    monkeypatch.setattr(os, "preadv", count)
    with pytest.warns(RuntimeWarning):
        GgufLoader(path)
    header = craft.offset("padding")
    assert header < sum(sizes) < 7 * header


@pytest.mark.usefixtures("unmappable")
def test_bad_file_gives_the_same_without_a_map(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    craft = big_header()
    path.write_bytes(craft.bytes()[:-1])
    with pytest.warns(RuntimeWarning), pytest.raises(GgufError) as caught:
        GgufLoader(path)
    assert (caught.value.field, caught.value.offset) == ("tensor_offset", craft.offset("t.offset"))


def test_mapping_warns_of_nothing(file: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MmapGguf(file)


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.gguf"
    path.touch()
    with pytest.raises(GgufError, match="magic at byte 0: the file ends after 0 of 4 bytes"):
        GgufLoader(path)


def test_pipe_does_not_wait(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(GgufError, match="not a regular file"):
        MmapGguf(path)


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match="not a regular file"):
        MmapGguf(tmp_path)


def test_what_is_locked_stays_in_memory(file: Path) -> None:
    def locked() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmLck:")[1].split()[0])

    before = locked()
    source = MmapGguf(file)
    source.prefetch()
    assert locked() == before
    source.lock()
    view = source.get_slice(7, 1)
    source.close()
    assert locked() == before + 16  # KiB: while a view lives
    assert view[0] == 7
    del view
    assert locked() == before


# Root may lock what it wants, so the process becomes somebody else once all is imported.
LOCKER = """
import os, resource, sys
from ingot.errors import MemoryShortageError
from ingot.gguf import MmapGguf
file = MmapGguf(sys.argv[1])
resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 8192))
if os.getuid() == 0:
    os.setresuid(65534, 65534, 65534)
try:
    file.lock()
except MemoryShortageError as error:
    print(error)
"""


def test_a_limit_on_locking_is_said_with_its_numbers(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOCKER, str(file)], capture_output=True, text=True, check=True
    )
    assert f"{file} cannot be locked in memory" in done.stdout
    assert "it has 16 KiB, but this process may lock 4 KiB" in done.stdout
    assert "hard limit is 8 KiB" in done.stdout
    assert "ulimit -l" in done.stdout


def test_what_is_not_mapped_cannot_be_locked(file: Path) -> None:
    source = MmapGguf(file, mapped=False)
    source.prefetch()
    with pytest.raises(MemoryShortageError, match="not memory-mapped"):
        source.lock()
