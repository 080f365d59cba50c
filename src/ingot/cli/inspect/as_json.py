"""`ingot inspect --json`: the keys that programs can rely on.

A model:

    path, files             the file (the first one of a split model); all files
    file_size               bytes of all files
    gguf_version            2 or 3
    architecture, name      strings or null
    parameters              weights in all tensors
    quantization            the name of the mix (Q4_K_M), or the type with the most bytes
    bits_per_weight         number or null
    context_length, embedding_length, layers
                            integers or null
    heads, kv_heads, feed_forward_length
                            integer, or a list (one per layer) if they differ, or null
    vocabulary              size: integer; model, pre: strings or null
    types                   per tensor type: type, tensors, weights, bytes, share (0 to 1),
                            bits_per_weight; largest first
    memory                  null, or context, batch (tokens), kv_type, and in bytes weights,
                            kv_cache, arena, total
    copies                  null, or of the matrices that are copied in the background if memory
                            allows it (weights="auto"): bytes; replace: whether the mapped pages of
                            the file are given back after that
    chat_template           string or null
    metadata                every key; an array is {"array": element type, "count": integer}
    tensors                 name, type, shape (rows first), bytes, file, offset

One tensor (`--tensor`): name, type, shape, bytes, values, zeros, nan, inf (counts); min, max,
mean, std of the finite values (null if there are none); histogram: low, high, count of each bin.
"""

from typing import TYPE_CHECKING, Any

from ingot.cli.inspect.tensor_statistics import TensorStatistics
from ingot.gguf import GgufLoader, LazyTensor, Metadata, ValueType
from ingot.memory_estimate import MemoryEstimate
from ingot.model_summary import ModelSummary

if TYPE_CHECKING:
    from ingot.backends.cpu import Copies


def model_json(
    loader: GgufLoader,
    summary: ModelSummary,
    memory: MemoryEstimate | None,
    copies: "Copies | None",
) -> dict[str, Any]:
    """A model as JSON; see the keys above."""
    dimensions = summary.dimensions
    layers = dimensions.layers if dimensions else ()
    return {
        "path": str(loader.path),
        "files": list(summary.files),
        "file_size": summary.file_bytes,
        "gguf_version": summary.version,
        "architecture": summary.architecture,
        "name": summary.name,
        "parameters": summary.parameters,
        "quantization": summary.quantization,
        "bits_per_weight": summary.bits_per_weight,
        "context_length": (dimensions.context or None) if dimensions else None,
        "embedding_length": dimensions.embedding if dimensions else None,
        "layers": len(layers) or None,
        "heads": _same_or_each([layer.heads for layer in layers]),
        "kv_heads": _same_or_each([layer.kv_heads for layer in layers]),
        "feed_forward_length": _same_or_each([layer.feed_forward for layer in layers]),
        "vocabulary": {
            "size": summary.vocabulary,
            "model": summary.vocabulary_kind,
            "pre": summary.pre_tokenizer,
        },
        "types": [
            {
                "type": share.type.name,
                "tensors": share.tensors,
                "weights": share.weights,
                "bytes": share.bytes,
                "share": share.share,
                "bits_per_weight": share.bits_per_weight,
            }
            for share in summary.types
        ],
        "memory": memory
        and {
            "context": memory.context,
            "batch": memory.batch,
            "kv_type": memory.kv_type.name,
            "weights": memory.weights,
            "kv_cache": memory.kv_cache,
            "arena": memory.arena,
            "total": memory.total,
        },
        "copies": copies and {"bytes": copies.size, "replace": copies.replace},
        "chat_template": summary.chat_template,
        "metadata": _metadata_json(loader.metadata),
        "tensors": [
            {
                "name": tensor.name,
                "type": tensor.type.name,
                "shape": list(tensor.shape),
                "bytes": tensor.nbytes,
                "file": str(tensor.path),
                "offset": tensor.offset,
            }
            for tensor in loader.tensors.values()
        ],
    }


def tensor_json(tensor: LazyTensor, found: TensorStatistics) -> dict[str, Any]:
    """One tensor as JSON; see the keys above."""
    return {
        "name": tensor.name,
        "type": tensor.type.name,
        "shape": list(tensor.shape),
        "bytes": tensor.nbytes,
        "values": found.values,
        "min": found.minimum,
        "max": found.maximum,
        "mean": found.mean,
        "std": found.deviation,
        "zeros": found.zeros,
        "nan": found.nans,
        "inf": found.infinities,
        "histogram": [
            {"low": part.low, "high": part.high, "count": part.count} for part in found.histogram
        ],
    }


def _same_or_each(numbers: list[int]) -> int | list[int] | None:
    return numbers[0] if len(set(numbers)) == 1 else numbers or None


def _metadata_json(metadata: Metadata) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in metadata:
        entry = metadata.entry(key)
        if entry.type is ValueType.ARRAY:
            found[key] = {"array": entry.element_type.name.lower(), "count": entry.count}
        else:
            found[key] = metadata[key]
    return found
