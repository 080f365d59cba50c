"""Models in several files: found, checked and written."""

import errno
from pathlib import Path

import gguf
import numpy as np
import pytest

from fuzz.craft import Craft, u64
from ingot import _native
from ingot.errors import GgufError
from ingot.gguf import GgmlType, GgufLoader, GgufWriter, ValueType

COUNT = 5


def values(number: int) -> np.ndarray:
    return np.arange(16 * (number + 1), dtype=np.float32) + number


def write_split(folder: Path, **limits: int) -> list[Path]:
    writer = GgufWriter(folder / "model.gguf", **limits)
    writer.add("general.architecture", "llama")
    for number in range(COUNT):
        writer.add_tensor(f"t{number}", values(number))
    return writer.write()


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return write_split(tmp_path, max_tensors=2)


def check(loader: GgufLoader) -> None:
    assert loader.metadata["general.architecture"] == "llama"
    assert list(loader.tensors) == [f"t{number}" for number in range(COUNT)]
    for number in range(COUNT):
        assert loader.tensors[f"t{number}"].data.tobytes() == values(number).tobytes()


def test_names(parts: list[Path]) -> None:
    assert [path.name for path in parts] == [
        "model-00001-of-00003.gguf",
        "model-00002-of-00003.gguf",
        "model-00003-of-00003.gguf",
    ]


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_part_opens_the_model(parts: list[Path], given: int) -> None:
    with GgufLoader(parts[given]) as loader:
        check(loader)
        assert loader.path == parts[0]
        assert [file.path for file in loader.files] == parts
        assert loader.tensors["t4"].path == parts[2]
        assert loader.metadata.integer("split.count") == 3


def test_parts_in_another_reader(parts: list[Path]) -> None:
    names = []
    for number, path in enumerate(parts):
        reader = gguf.GGUFReader(path)
        assert reader.fields["split.no"].contents() == number
        assert reader.fields["split.count"].contents() == 3
        assert reader.fields["split.tensors.count"].contents() == COUNT
        names += [tensor.name for tensor in reader.tensors]
    assert names == [f"t{number}" for number in range(COUNT)]


@pytest.mark.parametrize("limit", ["split_max_tensors", "split_max_size"])
def test_parts_of_another_writer(tmp_path: Path, limit: str) -> None:
    writer = gguf.GGUFWriter(
        tmp_path / "model.gguf", "llama", **{limit: 2 if limit == "split_max_tensors" else 400}
    )
    for number in range(COUNT):
        writer.add_tensor(f"t{number}", values(number))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    paths = sorted(tmp_path.iterdir())
    assert len(paths) > 1
    check(GgufLoader(paths[-1]))


def test_split_by_bytes(tmp_path: Path) -> None:
    # 64, 128, 192, 256 and 320 bytes; the last is larger than any part may be.
    paths = write_split(tmp_path, max_bytes=256)
    kept = [[t.name for t in gguf.GGUFReader(path).tensors] for path in paths]
    assert kept == [["t0", "t1"], ["t2"], ["t3"], ["t4"]]
    check(GgufLoader(paths[0]))


def test_tensor_larger_than_a_part(tmp_path: Path) -> None:
    paths = write_split(tmp_path, max_bytes=1)
    assert len(paths) == COUNT
    check(GgufLoader(paths[0]))


def test_alignment_is_in_every_part(tmp_path: Path) -> None:
    paths = write_split(tmp_path, max_tensors=2, alignment=8)
    check(GgufLoader(paths[0]))
    assert all(gguf.GGUFReader(path).alignment == 8 for path in paths)


def test_one_part_is_one_file(tmp_path: Path) -> None:
    (path,) = write_split(tmp_path, max_tensors=COUNT)
    assert path == tmp_path / "model.gguf"
    loader = GgufLoader(path)
    check(loader)
    assert "split.count" not in loader.metadata


@pytest.mark.parametrize("limits", [{"max_tensors": 0}, {"max_bytes": -1}])
def test_bad_limits(tmp_path: Path, limits: dict[str, int]) -> None:
    with pytest.raises(GgufError, match="no room"):
        GgufWriter(tmp_path / "model.gguf", **limits)


def test_split_files_need_their_suffix(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match=r"must end in \.gguf"):
        GgufWriter(tmp_path / "model.v2", max_tensors=1)


@pytest.mark.parametrize("given", [0, 2])
def test_missing_part(parts: list[Path], given: int) -> None:
    parts[1].unlink()
    with pytest.raises(GgufError, match="part 2 of 3 is missing") as caught:
        GgufLoader(parts[given])
    assert str(parts[1]) in str(caught.value)
    assert caught.value.field == "split.count"
    assert caught.value.offset is not None


@pytest.mark.parametrize("name", ["renamed.gguf", "model-00001-of-00004.gguf"])
def test_renamed_part(parts: list[Path], name: str) -> None:
    other = parts[0].with_name(name)
    parts[0].rename(other)
    with pytest.raises(GgufError, match="one of 3 parts") as caught:
        GgufLoader(other)
    assert caught.value.field == "split.count"


def test_parts_swapped(parts: list[Path]) -> None:
    first, second = parts[0].read_bytes(), parts[1].read_bytes()
    parts[0].write_bytes(second)
    parts[1].write_bytes(first)
    with pytest.raises(
        GgufError, match="the value is 1, but by the name of the file it must be 0"
    ) as caught:
        GgufLoader(parts[2])
    assert (caught.value.field, caught.value.path) == ("split.no", parts[0])


def part(folder: Path, number: int, *, count: int = 2, total: int = 2, name: str) -> Path:
    craft = (
        Craft()
        .key("split.no", ValueType.UINT16, number)
        .key("split.count", ValueType.UINT16, count)
        .key("split.tensors.count", ValueType.INT32, total)
        .tensor(name, [1], GgmlType.F32, bytes(4))
    )
    path = folder / f"x-{number + 1:05d}-of-00002.gguf"
    path.write_bytes(craft.bytes())
    return path


def test_total_that_does_not_add_up(tmp_path: Path) -> None:
    path = part(tmp_path, 0, name="a")
    part(tmp_path, 1, name="b", total=3)
    with pytest.raises(GgufError, match="the value is 3, but all parts together have 2") as caught:
        GgufLoader(path)
    assert caught.value.field == "split.tensors.count"


def test_tensor_in_two_parts(tmp_path: Path) -> None:
    path = part(tmp_path, 0, name="a")
    part(tmp_path, 1, name="a")
    with pytest.raises(GgufError, match="'a' is also in") as caught:
        GgufLoader(path)
    assert caught.value.field == "tensor_name"


def test_parts_of_different_models(tmp_path: Path) -> None:
    path = part(tmp_path, 0, name="a")
    part(tmp_path, 1, name="b", count=3)
    with pytest.raises(GgufError, match="the value is 3, but by the name of the file it must be 2"):
        GgufLoader(path)


def test_sibling_without_split_keys(tmp_path: Path) -> None:
    path = part(tmp_path, 0, name="a")
    (tmp_path / "x-00002-of-00002.gguf").write_bytes(Craft().bytes())
    with pytest.raises(GgufError, match=r"split\.no: this key is missing"):
        GgufLoader(path)


def test_bad_part_is_named(parts: list[Path]) -> None:
    parts[2].write_bytes(b"GGUF" + u64(3))
    with pytest.raises(GgufError) as caught:
        GgufLoader(parts[0])
    assert caught.value.path == str(parts[2])


def test_name_of_a_part_on_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "model-00001-of-00003.gguf"
    path.write_bytes(Craft().key("a", ValueType.BOOL, 1).bytes())
    assert GgufLoader(path).metadata["a"] is True


def test_one_warning_for_all_parts(parts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(_native, "GuardedMap", refuse)
    with pytest.warns(RuntimeWarning, match="cannot be memory-mapped") as caught:
        loader = GgufLoader(parts[0])
    assert len(caught) == 1
    check(loader)
