"""Which files of a repository or folder are a checkpoint: weights, and what describes them.

The names and sizes of files come in, a `CheckpointFiles` goes out. This module knows names only; it
opens no file.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic

from ingot.store.quantizations import AnyFile

INDEX = "model.safetensors.index.json"
_CONFIG = "config.json"
_WEIGHTS = ".safetensors"
_SINGLE = "model.safetensors"
_DESCRIBING = (".json", ".model", ".tiktoken", ".jinja")
_POOLING = "1_Pooling/config.json"
_VOCABULARIES = ("tokenizer.json", "tekken.json", ".model", ".tiktoken")
ENDINGS = (_WEIGHTS, *_DESCRIBING)


@dataclass(frozen=True, slots=True)
class CheckpointFiles(Generic[AnyFile]):
    """The files of a checkpoint; config.json is the last one."""

    weights: tuple[AnyFile, ...]
    others: tuple[AnyFile, ...]

    @property
    def all(self) -> tuple[AnyFile, ...]:
        """Weights first."""
        return (*self.weights, *self.others)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.all)

    @property
    def has_vocabulary(self) -> bool:
        """Whether one of the files is a vocabulary."""
        return any(file.path.endswith(_VOCABULARIES) for file in self.others)


def checkpoint_files(files: Iterable[AnyFile]) -> CheckpointFiles[AnyFile] | None:
    """The checkpoint among files; None without config.json or weights.

    `consolidated.safetensors` has the weights of `model.safetensors` again, in Mistral's own form.
    Beside `model.safetensors` and without an index, other files are the same in another precision.
    """
    found = sorted(files, key=lambda file: (file.path == _CONFIG, file.path))
    weights = [file for file in found if "/" not in file.path and file.path.endswith(_WEIGHTS)]
    if any(file.path.startswith("model") for file in weights):
        weights = [file for file in weights if not file.path.startswith("consolidated")]
    if not any(file.path == INDEX for file in found):
        weights = [file for file in weights if file.path == _SINGLE] or weights
    others = [
        file
        for file in found
        if (file.path.endswith(_DESCRIBING) and "/" not in file.path) or file.path == _POOLING
    ]
    if not weights or not others or others[-1].path != _CONFIG:
        return None
    return CheckpointFiles(tuple(weights), tuple(others))
