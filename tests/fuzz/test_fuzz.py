"""A short run of the fuzzer; `make fuzz` is the long one, with sanitizers."""

from pathlib import Path

from fuzz.mutate import make_file
from fuzz.run import fuzz


def test_spoiled_files(tmp_path: Path) -> None:
    outcomes = fuzz(3000, seed=2, path=tmp_path / "file.gguf")
    assert outcomes.total() == 3000
    fields = {
        "accepted", "magic", "version", "tensor_count", "metadata_kv_count", "key", "value_type",
        "value", "array_type", "array_length", "array", "general.alignment", "tensor_name",
        "n_dimensions", "dimensions", "tensor_type", "tensor_offset",
    }  # fmt: skip
    assert set(outcomes) >= fields, "the files no longer reach every check"


def test_files_are_reproducible() -> None:
    assert [make_file(1, number) for number in range(50)] == [
        make_file(1, number) for number in range(50)
    ]
    assert make_file(1, 0) != make_file(2, 0)
