"""open_adapter: an adapter from a file or a folder, checked against the model it is for."""

import os
from pathlib import Path

from ingot.adapters.adapter import Adapter
from ingot.adapters.gguf_adapter import read_gguf_adapter
from ingot.errors import AdapterError, ConversionError, GgufError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph


def open_adapter(
    path: str | os.PathLike[str], model: GgufLoader, graph: ComputationGraph
) -> Adapter:
    """Read an adapter for a model: a GGUF file, or a folder that PEFT saved."""
    place = Path(path).expanduser()
    architecture = model.metadata.string("general.architecture")
    try:
        if place.is_dir():
            from ingot.adapters.peft import read_peft_adapter  # noqa: PLC0415 (imports convert)

            adapter = read_peft_adapter(place, model)
        elif place.exists():
            adapter = read_gguf_adapter(place, architecture)
        else:
            raise AdapterError(f"there is no adapter {place}: it must be a GGUF file or a folder")
    except (GgufError, ConversionError, OSError) as error:
        raise AdapterError(f"the adapter {place} cannot be read: {error}") from error
    adapter.require_fit(graph)
    return adapter
