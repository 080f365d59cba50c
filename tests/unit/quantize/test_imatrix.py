"""Importance matrices: both file formats, what is refused, and what they change."""

from pathlib import Path
from struct import pack

import numpy as np
import pytest

from ingot import _native
from ingot.errors import QuantError
from ingot.gguf import GgmlType, GgufLoader, GgufWriter, ValueType
from ingot.quant import decode, encode
from ingot.quantize import plan
from ingot.quantize.imatrix import InputSums, read_imatrix, write_imatrix
from ingot.quantize.mixes import MIXES


@pytest.fixture
def rng() -> np.random.Generator:
    """The same numbers for every test, whatever ran before it."""
    return np.random.default_rng(11)


NAME = "blk.0.ffn_down.weight"


def entry(name: str, calls: int, values: np.ndarray) -> bytes:
    text = name.encode()
    head = pack("<i", len(text)) + text + pack("<ii", calls, values.size)
    return head + values.astype("<f4").tobytes()


def write_old(path: Path, entries: dict[str, np.ndarray], *, calls: int = 4) -> Path:
    data = b"".join(entry(name, calls, values) for name, values in entries.items())
    path.write_bytes(pack("<i", len(entries)) + data + pack("<ii", 7, 3) + b"txt")
    return path


def write_gguf(path: Path, sums: dict[str, np.ndarray], counts: dict[str, np.ndarray]) -> Path:
    writer = GgufWriter(path)
    writer.add("general.type", "imatrix")
    writer.add("imatrix.datasets", ["txt"], ValueType.STRING)
    writer.add("imatrix.chunk_count", 7)
    for name, values in sums.items():
        writer.add_tensor(f"{name}.in_sum2", values.astype("f4"))
        writer.add_tensor(f"{name}.counts", counts[name].astype("f4"))
    writer.write()
    return path


def test_the_older_format(tmp_path: Path) -> None:
    values = np.array([4.0, 8.0, 12.0, 0.0])
    found = read_imatrix(write_old(tmp_path / "x.dat", {NAME: values}))
    np.testing.assert_allclose(found.means[NAME], [[1, 2, 3, 0]])
    assert (found.datasets, found.chunks) == (("txt",), 7)
    # The mean is 1, and nothing counts nothing.
    np.testing.assert_allclose(found.of(NAME, (5, 4)), [[2 / 3, 4 / 3, 2, 1e-6]], rtol=1e-6)
    assert found.of("blk.1.ffn_down.weight", (5, 4)) is None


def test_the_gguf_format(tmp_path: Path) -> None:
    sums = {NAME: np.array([[4.0, 8.0], [5.0, 5.0]])}
    counts = {NAME: np.array([[4.0], [0.0]])}
    found = read_imatrix(write_gguf(tmp_path / "x.gguf", sums, counts))
    np.testing.assert_allclose(found.means[NAME], [[1, 2], [1, 1]])  # an expert without tokens
    assert (found.datasets, found.chunks) == (("txt",), 7)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    experts = InputSums(np.array([[4.0, 8.0], [0.0, 0.0]]), np.array([4, 0]))
    sums = {NAME: InputSums(np.array([[6.0, 2.0, 4.0]]), np.array([2])), "experts.weight": experts}
    path = tmp_path / "x.gguf"
    write_imatrix(path, sums, dataset="text.txt", chunks=3, chunk_size=64)
    found = read_imatrix(path)
    np.testing.assert_allclose(found.means[NAME], [[3, 1, 2]])
    np.testing.assert_allclose(found.means["experts.weight"], [[1, 2], [1, 1]])
    assert (found.datasets, found.chunks) == (("text.txt",), 3)


def test_the_gguf_package_reads_what_is_written(tmp_path: Path) -> None:
    """Names, keys and shapes are llama.cpp's: the numbers of all matrices, and a count of each."""
    gguf = pytest.importorskip("gguf")
    experts = InputSums(np.array([[4.0, 8.0, 1.0], [0.0, 0.0, 0.0]]), np.array([4, 0]))
    write_imatrix(tmp_path / "x.gguf", {NAME: experts}, dataset="a.txt", chunks=3, chunk_size=64)
    reader = gguf.GGUFReader(tmp_path / "x.gguf")
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.type"] == gguf.GGUFType.IMATRIX
    assert fields[gguf.Keys.IMatrix.DATASETS] == ["a.txt"]
    assert fields[gguf.Keys.IMatrix.CHUNK_COUNT] == 3
    assert fields[gguf.Keys.IMatrix.CHUNK_SIZE] == 64
    found = {tensor.name: tensor for tensor in reader.tensors}
    assert found.keys() == {f"{NAME}.in_sum2", f"{NAME}.counts"}
    assert found[f"{NAME}.in_sum2"].shape.tolist() == [3, 2]
    assert found[f"{NAME}.counts"].shape.tolist() == [1, 2]
    np.testing.assert_array_equal(found[f"{NAME}.in_sum2"].data, experts.sums)
    np.testing.assert_array_equal(found[f"{NAME}.counts"].data.ravel(), [4, 0])


@pytest.mark.parametrize(
    "values", [np.array([1.0, -1.0]), np.array([1.0, np.nan]), np.array([1.0, np.inf])]
)
def test_numbers_that_no_square_is(values: np.ndarray, tmp_path: Path) -> None:
    found = read_imatrix(write_old(tmp_path / "x.dat", {NAME: values}))
    with pytest.raises(QuantError, match="no square"):
        found.of(NAME, (3, 2))


def test_the_matrix_of_another_model(tmp_path: Path) -> None:
    found = read_imatrix(write_old(tmp_path / "x.dat", {NAME: np.ones(3)}))
    with pytest.raises(QuantError, match="has 3 numbers, but the tensor needs 4"):
        found.of(NAME, (5, 4))


def test_every_cut_is_refused(tmp_path: Path) -> None:
    path = write_old(tmp_path / "x.dat", {NAME: np.ones(3), "b": np.ones(2)})
    whole = path.read_bytes()
    end_of_entries = len(whole) - 11
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        if size == end_of_entries:  # what follows is optional
            assert len(read_imatrix(path).means) == 2
            continue
        with pytest.raises(QuantError, match=r"is no importance matrix|has no entries"):
            read_imatrix(path)


@pytest.mark.parametrize("content", [pack("<i", -1), pack("<i", 1 << 30), b"{}  more", bytes(4)])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(QuantError):
        read_imatrix(tmp_path / "x")


WEIGHTED = [kind for kind in GgmlType if _native.has_weighted_encoder(kind)]


def weighted_error(values: np.ndarray, blocks: np.ndarray, kind: GgmlType, counts) -> float:
    difference = values.astype("f8") - decode(blocks, kind, values.shape)
    return float((difference**2 * counts).sum())


def test_all_searched_types_know_importance() -> None:
    names = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
    few = ["Q1_0", "Q2_0"]
    grids = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
    assert {kind.name for kind in WEIGHTED} == {*names, *few, *grids, "IQ4_NL", "IQ4_XS"}


@pytest.mark.parametrize("kind", WEIGHTED)
def test_what_matters_is_nearer(kind: GgmlType, rng: np.random.Generator) -> None:
    values = rng.standard_t(4, (40, 512)).astype("f4")
    counts = rng.lognormal(0, 1.5, 512).astype("f4")
    plain = encode(values, kind)
    weighted = encode(values, kind, importance=counts)
    error = weighted_error(values, weighted, kind, counts)
    assert error < 0.97 * weighted_error(values, plain, kind, counts)


@pytest.mark.parametrize("kind", WEIGHTED)
def test_even_importance_is_as_good_as_none(kind: GgmlType, rng: np.random.Generator) -> None:
    values = rng.standard_normal((20, 256)).astype("f4")
    ones = np.ones(256, "f4")
    error = weighted_error(values, encode(values, kind, importance=ones), kind, 1)
    assert error < 1.001 * weighted_error(values, encode(values, kind), kind, 1)


@pytest.mark.parametrize("kind", [GgmlType.Q4_1, GgmlType.Q5_1])
def test_weights_that_were_quantized_before_stay_as_they_are(
    kind: GgmlType, rng: np.random.Generator
) -> None:
    values = rng.standard_normal((64, 256)).astype("f4")
    on_grid = decode(encode(values, GgmlType.Q4_1), GgmlType.Q4_1, values.shape)
    counts = rng.lognormal(0, 3, 256).astype("f4")
    found = decode(encode(on_grid, kind, importance=counts), kind, values.shape)
    np.testing.assert_array_equal(found, on_grid)


@pytest.mark.parametrize("kind", WEIGHTED)
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_are_encoded_alone(kind: GgmlType, threads: int, rng: np.random.Generator) -> None:
    """Odd numbers of blocks and rows, whatever the number of threads."""
    values = rng.standard_normal((37, 3 * 256)).astype("f4")
    counts = rng.uniform(0, 2, 3 * 256).astype("f4")
    whole = encode(values, kind, threads, importance=counts)
    for row in (0, 36):
        alone = encode(values[row : row + 1], kind, 1, importance=counts)
        np.testing.assert_array_equal(alone[0], whole[row])


@pytest.mark.parametrize("kind", WEIGHTED)
def test_extreme_weights(kind: GgmlType) -> None:
    columns = 256
    counts = np.zeros(columns, "f4")
    counts[::7] = 3
    cases = [np.zeros(columns), np.full(columns, 1e-30), np.full(columns, 3e4), np.arange(columns)]
    for case in cases:
        values = case.astype("f4").reshape(1, -1)
        found = decode(encode(values, kind, importance=counts), kind, values.shape)
        assert np.isfinite(found).all()
    assert not decode(encode(np.zeros((1, columns)), kind, importance=counts), kind).any()


def test_wrong_numbers_of_columns() -> None:
    with pytest.raises(QuantError, match=r"importance of shape \[3\] for rows of 256 weights"):
        encode(np.zeros((2, 256)), GgmlType.Q4_K, importance=np.ones(3, "f4"))
    with pytest.raises(ValueError, match="does not fit"):
        _native.encode_weighted(
            GgmlType.Q4_K, np.zeros(512, "f4"), np.ones(100, "f4"), np.zeros(288, "u1"), 1
        )


def write_model(path: Path, rng: np.random.Generator) -> Path:
    writer = GgufWriter(path)
    writer.add("general.architecture", "llama")
    writer.add("llama.block_count", 8)
    writer.add("llama.expert_count", 3)
    for layer in range(8):
        for name in ("attn_q", "ffn_down"):
            values = rng.standard_normal((4, 256)).astype("f2")
            writer.add_tensor(f"blk.{layer}.{name}.weight", values)
    writer.add_tensor("blk.0.ffn_up_exps.weight", rng.standard_normal((3, 4, 256)).astype("f2"))
    return writer.write()[0]


def test_a_file_quantized_with_importance(tmp_path: Path, rng: np.random.Generator) -> None:
    experts = rng.lognormal(0, 1, (3, 256))
    columns = rng.lognormal(0, 1, 256)
    path = write_old(
        tmp_path / "x.dat", {NAME: columns, "blk.0.ffn_up_exps.weight": experts}, calls=1
    )
    imatrix = read_imatrix(path)
    with GgufLoader(write_model(tmp_path / "model.gguf", rng)) as source:
        plan(source, MIXES["Q4_K_S"], imatrix=imatrix).write(tmp_path / "out.gguf")
        with GgufLoader(tmp_path / "out.gguf") as found:
            tensor, before = found.tensors[NAME], source.tensors[NAME]
            values = decode(before.data, before.type, before.shape)
            counts = imatrix.of(NAME, before.shape)
            assert counts is not None
            expected = encode(values, tensor.type, importance=counts[0])
            np.testing.assert_array_equal(tensor.data, expected.reshape(-1))
            tensor = found.tensors["blk.0.ffn_up_exps.weight"]
            before = source.tensors["blk.0.ffn_up_exps.weight"]
            values = decode(before.data, before.type, before.shape)
            counts = imatrix.of(before.name, before.shape)
            assert counts is not None
            each = [encode(values[e], tensor.type, importance=counts[e]) for e in range(3)]
            np.testing.assert_array_equal(tensor.data, np.concatenate(each).reshape(-1))
            assert found.metadata["quantize.imatrix.file"] == "x.dat"
            assert found.metadata["quantize.imatrix.entries_count"] == 2
            assert found.metadata["quantize.imatrix.chunks_count"] == 7


def test_mixes_that_depend_on_importance(tmp_path: Path, rng: np.random.Generator) -> None:
    imatrix = read_imatrix(write_old(tmp_path / "x.dat", {NAME: np.ones(256)}))
    other = read_imatrix(write_old(tmp_path / "y.dat", {"other": np.ones(256)}))
    with GgufLoader(write_model(tmp_path / "model.gguf", rng)) as source:
        types = plan(source, MIXES["Q4_0"], imatrix=imatrix).types
        assert types[NAME] is GgmlType.Q4_1  # of the first eighth
        assert types["blk.1.ffn_down.weight"] is GgmlType.Q4_0
        with pytest.raises(QuantError, match="Q2_K_S needs an importance matrix"):
            plan(source, MIXES["Q2_K_S"])
        with pytest.raises(QuantError, match="knows no tensor"):
            plan(source, MIXES["Q4_0"], imatrix=other)
