"""Which tensors a file gets from a checkpoint, and how each is read.

In: the stored form of an architecture (`Checkpoint`), its settings and the stored tensors. Out: a
`FileTensor` for each tensor of the file, which is read row by row. Names that have no place are a
`ConversionError`, because the model would be another one without them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from ingot.arrays import Bytes, Floats
from ingot.convert.matrices import Matrix, PlainMatrix, RowNumbers
from ingot.convert.packed import Mxfp4Matrix
from ingot.convert.safetensors import StoredTensor
from ingot.errors import ConversionError
from ingot.gguf import GgmlType
from ingot.models.checkpoint import Checkpoint, Rows
from ingot.models.settings import Settings

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_ENDINGS = (".weight", ".bias")
# The language model inside a multimodal one, and what is beside it.
_LANGUAGE = ("model.language_model.", "language_model.model.", "language_model.")
_BESIDE = (
    "vision_tower.", "vision_model.", "visual.", "multi_modal_projector.", "audio_tower.",
    "model.vision_tower.", "model.visual.", "model.multi_modal_projector.", "model.audio_tower.",
)  # fmt: skip
_NEVER_NEEDED = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of a stored tensor, in the order of the file."""

    matrix: Matrix
    order: RowNumbers | None  # None: all, as they are
    shape: tuple[int, ...]  # with columns

    @property
    def rows(self) -> int:
        return prod(self.shape[:-1])

    def read(self, first: int, last: int) -> Floats:
        numbers = np.arange(first, last) if self.order is None else self.order[first:last]
        return self.matrix.read(numbers)


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor of the file, made of pieces of stored ones."""

    name: str
    shape: tuple[int, ...]
    pieces: tuple[_Piece, ...]
    change: Callable[[Floats], Floats] | None

    @property
    def rows(self) -> int:
        """Rows that `read` numbers through."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def columns(self) -> int:
        """Elements of such a row."""
        return self.pieces[0].shape[-1]

    @property
    def kept_type(self) -> GgmlType | None:
        """The type whose blocks the values already are, if there is one."""
        packed = all(isinstance(piece.matrix, Mxfp4Matrix) for piece in self.pieces)
        return GgmlType.MXFP4 if packed else None

    def stored_as(self, kind: GgmlType) -> Bytes | None:
        """The bytes in the checkpoint, if they are already those of a tensor of this type."""
        matrix = self.pieces[0].matrix
        plain = len(self.pieces) == 1 and self.pieces[0].order is None and self.change is None
        if not plain or not isinstance(matrix, PlainMatrix) or matrix.transposed:
            return None
        return matrix.tensor.data if matrix.tensor.type == kind.name else None

    def release(self) -> None:
        """Give back the memory of what was read; it is read again if it is needed again."""
        for piece in self.pieces:
            piece.matrix.release()

    def read(self, first: int, last: int) -> Floats:
        """Rows `first` to `last`."""
        found, start = [], 0
        for piece in self.pieces:
            low, high = max(first - start, 0), min(last - start, piece.rows)
            if low < high:
                found.append(piece.read(low, high))
            start += piece.rows
        values = found[0] if len(found) == 1 else np.concatenate(found)
        return values if self.change is None else self.change(values)


@dataclass(frozen=True, slots=True)
class _Source:
    """A stored tensor and its place in a tensor of the file."""

    rank: int  # among the names that are joined
    number: int | None  # of an expert or a head
    name: str
    matrix: Matrix
    part: int  # of the names that `rows` states
    rows: Rows | None


def plan_tensors(
    checkpoint: Checkpoint, settings: Settings, stored: Mapping[str, Matrix | StoredTensor]
) -> dict[str, FileTensor]:
    """The tensors of the file, by name."""
    sources: dict[str, list[_Source]] = {}
    tied = settings.boolean("tie_word_embeddings", False)
    for full_name, tensor in stored.items():
        name = _language_name(full_name, checkpoint)
        if name is None:
            continue
        prefix, number, place, rank, ending, inner = _place(name, full_name, checkpoint)
        rows = place if isinstance(place, Rows) else None
        names = rows.names if rows else (str(place),)
        for part, own in enumerate(names):
            target = prefix + own + ending
            if target == "output.weight" and tied:
                continue
            matrix = _matrix(tensor, target, inner, checkpoint)
            source = _Source(rank, number, full_name, matrix, part, rows)
            sources.setdefault(target, []).append(source)
    planned = {name: _joined(name, found, checkpoint, settings) for name, found in sources.items()}
    return dict(sorted(planned.items(), key=lambda item: _natural(item[0])))


def _language_name(name: str, checkpoint: Checkpoint) -> str | None:
    """A name without the prefixes of some classes; None for what a file does not need."""
    if name.startswith(_BESIDE):
        return None
    for prefix in _LANGUAGE:
        if name.startswith(prefix):
            rest = name.removeprefix(prefix)
            name = rest if rest.startswith(("lm_head.", "model.")) else f"model.{rest}"
            break
    for prefix in checkpoint.prefixes:
        name = name.removeprefix(prefix)
    return None if name.endswith((*checkpoint.ignored, *_NEVER_NEEDED)) else name


def _place(
    name: str, full_name: str, checkpoint: Checkpoint
) -> tuple[str, int | None, Rows | str, int, str, str]:
    """Prefix in the file, number, place, rank, ending, and the name inside the layer."""
    prefix, inner, find = "", name, checkpoint.outer_place
    if name.startswith(f"{checkpoint.layers}."):
        layer, _, inner = name.removeprefix(f"{checkpoint.layers}.").partition(".")
        if not layer.isdecimal() or len(layer) > 6:
            raise _unknown(full_name)
        prefix, find = f"blk.{int(layer)}.", checkpoint.place
    numbers = _NUMBER.findall(inner)
    pattern = _NUMBER.sub("{}", inner, count=1)
    number = int(numbers[0]) if len(numbers) == 1 and len(numbers[0]) <= 6 else None
    place = find(pattern)
    if place is not None:
        return prefix, number, place, checkpoint.rank(pattern), "", pattern
    for ending in _ENDINGS:
        stem = pattern.removesuffix(ending)
        place = find(stem) if stem != pattern else None
        if place is not None:
            return prefix, number, place, checkpoint.rank(stem), ending, stem
    raise _unknown(full_name)


def _unknown(name: str) -> ConversionError:
    return ConversionError(
        f"tensor {name} has no place in this architecture; the file would be another model "
        "without it"
    )


def _matrix(
    tensor: Matrix | StoredTensor, target: str, inner: str, checkpoint: Checkpoint
) -> Matrix:
    if not isinstance(tensor, StoredTensor):
        return tensor
    vectors = target.endswith(".bias")
    transposed = inner in checkpoint.transposed and not vectors and len(tensor.shape) > 1
    return PlainMatrix(tensor, vectors=vectors, transposed=transposed)


def _joined(
    name: str, sources: list[_Source], checkpoint: Checkpoint, settings: Settings
) -> FileTensor:
    sources = sorted(sources, key=lambda source: (source.rank, source.number or 0))
    pieces = tuple(_piece(source, settings) for source in sources)
    shapes = {piece.shape for piece in pieces}
    if any(0 in shape for shape in shapes):
        raise ConversionError(f"{sources[0].name} is empty")
    if sources[0].number is not None:
        if [source.number for source in sources] != list(range(len(sources))) or len(shapes) > 1:
            raise ConversionError(
                f"{name}: the checkpoint has {len(sources)} parts like {sources[0].name}, which "
                "are not numbered from 0 or differ in shape; a file of it may be missing"
            )
        shape = (len(pieces), *pieces[0].shape)
    elif len(pieces) == 1:
        shape = pieces[0].shape
    else:
        if len({shape[-1] for shape in shapes}) > 1 or any(len(shape) != 2 for shape in shapes):
            raise ConversionError(f"{name}: {', '.join(s.name for s in sources)} do not fit")
        shape = (sum(piece.rows for piece in pieces), pieces[0].shape[-1])
    if shape[-1] == 1 and _are_vectors(name, sources):
        shape = shape[:-1]
    for ending, reshape in checkpoint.shapes.items():
        if name.endswith(ending):
            shape = reshape(shape, settings)
    change = next((fn for end, fn in checkpoint.values.items() if name.endswith(end)), None)
    planned = FileTensor(name, shape, pieces, change)
    if prod(shape) != planned.rows * planned.columns:
        raise ConversionError(f"{name}: shape {shape} does not fit {sources[0].name}")
    return planned


def _are_vectors(name: str, sources: list[_Source]) -> bool:
    """Whether the last dimension is only there because elements are rows."""
    return name.endswith(".bias") or all(
        isinstance(source.matrix, PlainMatrix) and source.matrix.is_vector for source in sources
    )


def _piece(source: _Source, settings: Settings) -> _Piece:
    *leading, rows, columns = source.matrix.shape
    if source.rows is None:
        return _Piece(source.matrix, None, source.matrix.shape)
    try:
        picked = source.rows.pick(rows, settings)[source.part]
    except ConversionError:
        raise
    except ValueError:
        raise ConversionError(
            f"{source.name} has {rows} rows, which the settings of config.json do not divide"
        ) from None
    starts = rows * np.arange(prod(leading))
    order = (starts[:, None] + picked).reshape(-1)
    return _Piece(source.matrix, order, (*leading, len(picked), columns))


def _natural(name: str) -> tuple[int, int, str]:
    """Tensors outside of layers first, then layer by layer."""
    if not name.startswith("blk."):
        return (0, 0, name)
    layer, _, rest = name.removeprefix("blk.").partition(".")
    return (1, int(layer), rest)
