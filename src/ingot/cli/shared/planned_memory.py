"""How much memory a model takes that is not downloaded yet.

A plan comes in, bytes go out. The header of the model's file is read from its server and put in
front of an empty file of the same size, so that it can be opened like any other. If that does not
work, the size of the model has to do.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from ingot.engine.model.loaded_model import DEFAULT_CONTEXT
from ingot.errors import IngotError
from ingot.gguf import GgufLoader
from ingot.graph.kv_type import KvType
from ingot.memory_estimate import ModelDimensions, estimate_memory
from ingot.store.download import read_beginning
from ingot.store.plan import Plan, PlannedFile

_HEADERS = (1 << 20, 1 << 23, 1 << 26)  # bytes; vocabularies make up most of a header


def planned_memory(plan: Plan) -> int:
    """Bytes for weights, arena and a KV cache of the usual context."""
    weights = [file for file in plan.files if file.weights]
    if len(weights) > 1 or weights[0].source.label.endswith(".safetensors"):
        return plan.memory  # one header tells only part of a split model, and no settings
    return _exactly(weights[0]) or plan.memory


def _exactly(file: PlannedFile) -> int | None:
    try:
        if file.is_here:
            return _opened(file.target)
        if file.source.size is None:
            return None
        with TemporaryDirectory() as folder:
            return _from_header(file, Path(folder) / "header.gguf", file.source.size)
    except (IngotError, OSError):
        return None


def _from_header(file: PlannedFile, path: Path, size: int) -> int | None:
    for count in _HEADERS:
        path.write_bytes(read_beginning(file.source, min(count, size)))
        os.truncate(path, size)  # the rest is a hole, which takes no room
        try:
            return _opened(path)
        except IngotError:  # the header is longer
            if count >= size:
                raise
    return None


def _opened(path: Path) -> int | None:
    with GgufLoader(path) as loader:
        dimensions = ModelDimensions.from_metadata(loader.metadata)
        trained = dimensions.context if dimensions else 0
        context = min(trained or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
        estimate = estimate_memory(loader, context, KvType.F16)
    return estimate.total if estimate else None
