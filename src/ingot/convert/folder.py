"""The folder of a checkpoint: its JSON files, and its tensors from all safetensors files.

In: a path. Out: the decoded config.json and the stored tensors, each once. It does not know
architectures.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.convert.safetensors import StoredTensor, read_safetensors
from ingot.errors import ConversionError

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_MOST_JSON_BYTES = 200_000_000  # the largest vocabularies have some tens of millions


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """A folder as `save_pretrained` writes it."""

    path: Path
    config: Mapping[str, Any]

    @classmethod
    def open(cls, path: Path) -> "CheckpointFolder":
        """Read config.json; `ConversionError` if there is none."""
        if not path.is_dir():
            raise ConversionError(f"{path} is not a folder; give the folder of a checkpoint")
        config = read_json(path / "config.json")
        if config is None:
            raise ConversionError(
                f"{path} has no config.json; give a folder as `transformers` saves it"
            )
        return cls(path, config)

    @property
    def model_class(self) -> str:
        """The class of the model, as config.json names it."""
        names = self.config.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise ConversionError(f"{self.path / 'config.json'} does not name its architecture")
        return names[0]

    def json(self, name: str) -> Mapping[str, Any]:
        """A JSON file of the folder; empty if it is not there."""
        return read_json(self.path / name) or {}

    def tensors(self) -> dict[str, StoredTensor]:
        """All tensors, by name; an index and its files must agree."""
        index = read_json(self.path / _INDEX)
        if index is None:
            files = self._files_without_index()
            wanted = None
        else:
            wanted = index.get("weight_map")
            if not isinstance(wanted, dict) or not all(_is_file(name) for name in wanted.values()):
                raise ConversionError(f"{self.path / _INDEX} has no valid weight_map")
            files = sorted({self.path / name for name in wanted.values()})
        found: dict[str, StoredTensor] = {}
        for file in files:
            if not file.is_file():
                raise ConversionError(f"{file} is missing; download the checkpoint again")
            for name, tensor in read_safetensors(file).items():
                if name in found:
                    raise ConversionError(f"tensor {name} is in {found[name].file.path} and {file}")
                found[name] = tensor
        missing = sorted(set(wanted or ()) - found.keys())
        if missing:
            raise ConversionError(
                f"{self.path}: {len(missing)} tensors of the index are in no file, "
                f"for example {missing[0]}"
            )
        return found

    def _files_without_index(self) -> list[Path]:
        single = self.path / _SINGLE
        files = [single] if single.is_file() else sorted(self.path.glob("*.safetensors"))
        if not files:
            others = any(self.path.glob("*.bin")) or any(self.path.glob("*.pth"))
            hint = (
                "; it has PyTorch's pickled files, which may run code: save it as safetensors first"
            )
            raise ConversionError(f"{self.path} has no safetensors file{hint if others else ''}")
        return files


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; None if there is no such file."""
    if not path.is_file():
        return None
    if path.stat().st_size > _MOST_JSON_BYTES:
        raise ConversionError(f"{path} is larger than {_MOST_JSON_BYTES} bytes")
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConversionError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConversionError(f"{path} is not a JSON object")
    return value


def _is_file(name: Any) -> bool:
    """Whether a name is that of a file in the same folder."""
    return isinstance(name, str) and Path(name).name == name and name.endswith(".safetensors")
