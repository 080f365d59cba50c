"""The files of one model: usually one, or `x-00001-of-00003.gguf` and the other parts.

In: the path of any part. Out: all parts, opened, checked against each other, and in order. Three
keys connect them: `split.no` (from 0), `split.count` and `split.tensors.count` (of all parts).
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ingot.errors import GgufError
from ingot.gguf.header import Header, read_header
from ingot.gguf.metadata import Metadata
from ingot.gguf.mmap import MmapGguf

NUMBER_KEY = "split.no"
COUNT_KEY = "split.count"
TENSORS_KEY = "split.tensors.count"

_PART_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Part:
    """One opened file of a model."""

    file: MmapGguf
    header: Header
    metadata: Metadata


def part_path(path: Path, number: int, count: int) -> Path:
    """The path of part `number` (from 0) of a model that would be `path` as one file."""
    return path.with_name(f"{path.stem}-{number + 1:05d}-of-{count:05d}.gguf")


def open_parts(path: Path, *, mapped: bool = True) -> tuple[Part, ...]:
    """Open all files of the model that `path` belongs to, the first part first."""
    given = _open_part(path, mapped=mapped)
    count = given.metadata.integer(COUNT_KEY, 1)
    if count <= 1:
        return (given,)
    whole = _name_of_whole(path, given.metadata, count)
    parts: list[Part] = []
    try:
        for number in range(count):
            sibling = part_path(whole, number, count)
            part = given if sibling.name == path.name else _open_sibling(sibling, number, given)
            parts.append(part)
            _check_number(part, number, count)
        _check_tensors(parts)
    except BaseException:
        for part in (given, *parts):
            part.file.close()
        raise
    return tuple(parts)


def _open_part(path: Path, *, mapped: bool) -> Part:
    file = MmapGguf(path, mapped=mapped)
    try:
        header = read_header(file)
    except BaseException:
        file.close()
        raise
    return Part(file, header, Metadata(header, path))


def _open_sibling(path: Path, number: int, given: Part) -> Part:
    # Parts share a folder: if one cannot be mapped, the others are not tried, so that there is
    # one warning per model.
    try:
        return _open_part(path, mapped=given.file.is_mapped)
    except FileNotFoundError:
        count = given.metadata.integer(COUNT_KEY)
        raise GgufError(
            f"part {number + 1} of {count} is missing: {path}",
            field=COUNT_KEY,
            offset=given.metadata.entry(COUNT_KEY).offset,
            path=given.file.path,
        ) from None


def _name_of_whole(path: Path, metadata: Metadata, count: int) -> Path:
    match = _PART_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise GgufError(
            f"the file is one of {count} parts, so its name must end in "
            f"-00001-of-{count:05d}.gguf or similar, otherwise the others cannot be found",
            field=COUNT_KEY,
            offset=metadata.entry(COUNT_KEY).offset,
            path=path,
        )
    return path.with_name(f"{match['stem']}.gguf")


def _check_number(part: Part, number: int, count: int) -> None:
    for key, expected in ((NUMBER_KEY, number), (COUNT_KEY, count)):
        found = part.metadata.integer(key)
        if found != expected:
            raise GgufError(
                f"the value is {found}, but by the name of the file it must be {expected}",
                field=key,
                offset=part.metadata.entry(key).offset,
                path=part.file.path,
            )


def _check_tensors(parts: list[Part]) -> None:
    total = sum(len(part.header.tensors) for part in parts)
    for part in parts:
        expected = part.metadata.integer(TENSORS_KEY, total)
        if expected != total:
            raise GgufError(
                f"the value is {expected}, but all parts together have {total} tensors",
                field=TENSORS_KEY,
                offset=part.metadata.entry(TENSORS_KEY).offset,
                path=part.file.path,
            )
    seen: dict[str, Path] = {}
    for part in parts:
        for tensor in part.header.tensors:
            if tensor.name in seen:
                raise GgufError(
                    f"'{tensor.name}' is also in {seen[tensor.name]}",
                    field="tensor_name",
                    path=part.file.path,
                )
            seen[tensor.name] = part.file.path
