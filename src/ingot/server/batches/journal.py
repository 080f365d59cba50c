"""Journal: the answers of a batch in a file, each appended when it comes.

A line is `[number of the request, answer]` as JSON. A line that a killed process cut off is left
out, and removed before the next one is appended.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from ingot.errors import ConfigError
from ingot.server.batches.requests import Answer


class Journal:
    """A file of answers, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_whole = False

    def append(self, number: int, answer: Answer) -> None:
        """Keep an answer."""
        with self.path.open("ab") as file:
            if not self._is_whole:
                file.truncate(sum(len(line) for _, line in self._lines()))
                self._is_whole = True
            file.write(json.dumps([number, asdict(answer)]).encode() + b"\n")

    def answers(self) -> Iterator[tuple[int, Answer]]:
        """All answers, in the order they came, with the numbers of their requests."""
        for _, line in self._lines():
            yield self._parsed(line)

    def offsets(self) -> dict[int, int]:
        """Where the answers are in the file, by the numbers of their requests."""
        return {self._parsed(line)[0]: offset for offset, line in self._lines()}

    def read(self, file: BinaryIO, offset: int) -> Answer:
        """The answer at an offset of the open file."""
        file.seek(offset)
        return self._parsed(file.readline())[1]

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        if not self.path.exists():
            return
        offset = 0
        with self.path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield offset, line
                    offset += len(line)

    def _parsed(self, line: bytes) -> tuple[int, Answer]:
        try:
            number, fields = json.loads(line)
            return int(number), Answer(**fields)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{self.path} holds no answers of a batch: {error}") from None
