"""Which files of a folder or repository are a model, and which model to take.

The names and sizes of files come in. A model in several files (`-00001-of-00003`) is one choice;
projectors of vision models (`mmproj`) go along with any of them. If the user names no quantization,
the largest one that fits in memory is taken, because it is the most exact. Unquantized files (F16)
are taken only if there is nothing else: twice the bytes of Q8_0 make them half as fast, and no
better. This module knows names only; it opens no file.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ingot.errors import MemoryShortageError, ModelNotFoundError, StoreError

_PART = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf")
_QUANTIZATION = re.compile(
    r"(?<![A-Z0-9])((?:UD-)?(?:I?Q[1-8]_[A-Z0-9]+(?:_[A-Z0-9]+)*|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4"
    r"|BF16|F(?:P)?16|F(?:P)?32))(?![A-Z0-9])"
)
_UNQUANTIZED = frozenset({"BF16", "F16", "FP16", "F32", "FP32"})
_FIXED = 256 << 20  # bytes of memory that every model takes


class NamedFile(Protocol):
    """A file of which the path and the size are known."""

    @property
    def path(self) -> str:
        """Relative to the folder or repository."""

    @property
    def size(self) -> int:
        """In bytes."""


AnyFile = TypeVar("AnyFile", bound=NamedFile)


@dataclass(frozen=True, slots=True)
class Choice(Generic[AnyFile]):
    """A model: its files in order, and its quantization, if the names tell."""

    files: tuple[AnyFile, ...]
    quantization: str | None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def memory_needed(size: int) -> int:
    """About how many bytes of memory a model file of that size takes, with a context of 8192.

    Beside the weights there is a KV cache: about 1 GiB for models of 4 to 10 billion parameters,
    less for smaller ones, somewhat more for larger ones. The header of a file says it exactly.
    """
    return size + min(size // 2, (1 << 30) + size // 16) + _FIXED


def quantization_of(path: str) -> str | None:
    """The quantization in a name: Q4_K_M in `model-Q4_K_M.gguf` or `Q4_K_M/model.gguf`."""
    found = _QUANTIZATION.findall(path.upper().removesuffix(".GGUF"))
    return found[-1] if found else None


def split_stem(name: str) -> tuple[str, int, int] | None:
    """The stem, the number and the count of a file of a split model; None for other files."""
    match = _PART.fullmatch(name)
    return (match["stem"], int(match["part"]), int(match["parts"])) if match else None


def choices_of(files: Iterable[AnyFile]) -> list[Choice[AnyFile]]:
    """The models among files, largest first; one of which files are missing is left out."""
    groups: dict[tuple[str, int], dict[int, AnyFile]] = {}
    for file in files:
        if file.path.endswith(".gguf") and not _is_other(file.path):
            stem, part, parts = split_stem(file.path) or (file.path, 1, 1)
            groups.setdefault((stem, parts), {})[part] = file
    found = [
        Choice(tuple(group[part] for part in sorted(group)), quantization_of(stem))
        for (stem, parts), group in groups.items()
        if sorted(group) == list(range(1, parts + 1))
    ]
    return sorted(found, key=lambda choice: (-choice.size, choice.files[0].path))


def projector_of(files: Iterable[AnyFile]) -> AnyFile | None:
    """The projector among files, in F16 if there are several."""
    found = [file for file in files if file.path.endswith(".gguf") and _is_projector(file.path)]
    order = {"F16": 0, "FP16": 0, "BF16": 1, "Q8_0": 2}
    found.sort(key=lambda file: (order.get(quantization_of(file.path) or "", 3), file.path))
    return found[0] if found else None


def choose(
    choices: Sequence[Choice[AnyFile]],
    quantization: str | None,
    file: str | None,
    room: int,
    where: str,
) -> tuple[Choice[AnyFile], str | None]:
    """The choice that was asked for, or the best one; and a sentence about it, if it was ours."""
    if file is not None:
        found = [each for each in choices if any(part.path == file for part in each.files)]
        return _only(found, choices, f"no file {file!r}", where), None
    if quantization is not None:
        wanted = quantization.upper()
        found = [each for each in choices if each.quantization == wanted]
        found = found or [each for each in choices if each.quantization == f"UD-{wanted}"]
        return _only(found, choices, f"no quantization {quantization}", where), None
    if len(choices) <= 1:
        return _only(choices, choices, "no GGUF file", where), None
    return _best(choices, room, where)


def _best(
    choices: Sequence[Choice[AnyFile]], room: int, where: str
) -> tuple[Choice[AnyFile], str | None]:
    quantized = [each for each in choices if each.quantization not in _UNQUANTIZED]
    fitting = [each for each in quantized or choices if memory_needed(each.size) <= room]
    if not fitting:
        least = choices[-1]
        raise MemoryShortageError(
            f"no model in {where} fits in memory: the smallest, {_title(least)}, takes about "
            f"{memory_needed(least.size) / 2**30:.1f} GiB, and {room / 2**30:.1f} GiB are "
            "available; name a quantization to take it nevertheless"
        )
    best = fitting[0]
    rivals = [each for each in fitting if each.quantization == best.quantization]
    if len(rivals) > 1:
        return _only(rivals, choices, "", where), None  # raises
    said = (
        f"taking {_title(best)}, the best of {len(choices)} that fits: about "
        f"{memory_needed(best.size) / 2**30:.1f} of {room / 2**30:.1f} GiB of memory"
    )
    return best, said


def _only(
    found: Sequence[Choice[AnyFile]],
    choices: Sequence[Choice[AnyFile]],
    problem: str,
    where: str,
) -> Choice[AnyFile]:
    """The only one of those found, or an error that says what there is."""
    if len(found) == 1:
        return found[0]
    if found:
        files = _listed(found, lambda choice: choice.files[0].path)
        raise StoreError(f"{where} has several such models; name one: {files}")
    there = f"; it has {_listed(choices, _title)}" if choices else ""
    raise ModelNotFoundError(f"{where} has {problem}{there}")


def _listed(choices: Sequence[Choice[AnyFile]], title: Callable[[Choice[AnyFile]], str]) -> str:
    more = f" and {len(choices) - 20} more" if len(choices) > 20 else ""
    return ", ".join(title(choice) for choice in choices[:20]) + more


def _title(choice: Choice[AnyFile]) -> str:
    return choice.quantization or choice.files[0].path


def _is_projector(path: str) -> bool:
    return "mmproj" in path.rpartition("/")[2].lower()


def _is_other(path: str) -> bool:
    """Whether a GGUF file is not a model: a projector or an importance matrix."""
    return _is_projector(path) or "imatrix" in path.rpartition("/")[2].lower()
