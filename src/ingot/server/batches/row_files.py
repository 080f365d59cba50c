"""RowFile: the rows of a batch in a file of JSON lines or a Parquet file.

Every row goes out as the bytes of a line in OpenAI's format, one at a time, so that a file may be
larger than the memory. Parquet files have the columns `custom_id`, `url`, `body` and, if they like,
`method`. A body is JSON text, or a struct, whose missing fields are left out.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ingot.errors import ConfigError

_BOM = b"\xef\xbb\xbf"
_AT_ONCE = 256  # rows of a Parquet file in memory


class RowFile:
    """A file of requests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_parquet = path.suffix == ".parquet"
        with path.open("rb") as file:  # it must exist, and be readable
            self.digest = hashlib.file_digest(file, "sha256").hexdigest()
        self.count = sum(1 for _ in self.rows())
        if not self.count:
            raise ConfigError(f"{path} has no requests")

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """The rows with their numbers, from 1; lines without text are none."""
        lines = self._parquet_rows() if self._is_parquet else self._lines()
        return ((number, line) for number, line in enumerate(lines, 1) if line.strip())

    def _lines(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file):
                yield line.removeprefix(_BOM) if number == 0 else line

    def _parquet_rows(self) -> Iterator[bytes]:
        try:
            import pyarrow  # noqa: PLC0415 (an extra)
            import pyarrow.parquet  # noqa: PLC0415
        except ModuleNotFoundError:
            raise ConfigError(
                "Parquet files need the package pyarrow: pip install 'ingot-llm[parquet]'"
            ) from None
        try:
            with pyarrow.parquet.ParquetFile(self.path) as file:
                for batch in file.iter_batches(batch_size=_AT_ONCE):
                    for row in batch.to_pylist():
                        yield _line(row)
        except (pyarrow.ArrowException, OSError) as error:
            raise ConfigError(f"{self.path} is not a Parquet file: {error}") from None


def _line(row: dict[str, Any]) -> bytes:
    given = {"method": "POST", **row}
    if isinstance(given.get("body"), str):
        with suppress(ValueError):  # the check of the line says what is wrong
            given["body"] = json.loads(given["body"])
    return json.dumps(_without_missing(given), default=str).encode()


def _without_missing(value: Any) -> Any:
    """A value without the fields of structs that are null."""
    if isinstance(value, dict):
        return {name: _without_missing(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_missing(each) for each in value]
    return value
