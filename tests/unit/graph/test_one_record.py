"""An operation is one record: the files that know it are those of the recipe, and no others."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot import _native
from ingot.backends.reference import Reference
from ingot.backends.reference.step import Matrix, Step, compute
from ingot.errors import GraphError, ModelError
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.graph.cut import cut
from ingot.graph.drawing import Drawing
from ingot.graph.fusion import fuse
from ingot.graph.listing import GraphListing
from ingot.graph.ops.record import INPUT, OUTPUT
from ops.small_graph import SmallGraph
from run_batches import Runner

ROOT = Path(__file__).resolve().parents[3]
NATIVE = ROOT / "native"
PACKAGE = ROOT / "src" / "ingot"


RECORDS = {
    name: kind
    for name, kind in vars(o).items()
    if isinstance(kind, type) and issubclass(kind, o.Record) and kind not in (o.Record, o.Op)
}
OPS = {name: kind for name, kind in RECORDS.items() if issubclass(kind, o.Op)}
PARTS = {name: kind for name, kind in RECORDS.items() if name not in OPS}
SOURCES = [
    path
    for folder, kinds in ((PACKAGE, ("py", "pyi")), (NATIVE, ("h", "cpp")))
    for kind in kinds
    for path in folder.rglob(f"*.{kind}")
]


def files_with(name: str) -> set[str]:
    """Source files that name an operation, the networks that use it and the GPU left out."""
    word = re.compile(rf"\b{name}(?:Op)?\b")
    elsewhere = ("src/ingot/models/", "src/ingot/backends/gpu/")
    found = {path.relative_to(ROOT).as_posix() for path in SOURCES if word.search(path.read_text())}
    return {part for part in found if not part.startswith(elsewhere)}


@pytest.mark.parametrize(
    ("name", "family", "kernel"),
    [
        ("CausalConv", "recurrent", "recurrent_ops"),
        ("StateScan", "recurrent", "recurrent_ops"),
        ("Embed", "rows", "ops"),
        ("SoftCap", "rows", "ops"),
    ],
)
def test_an_operation_is_known_in_four_places(name: str, family: str, kernel: str) -> None:
    """Its record, its definition in NumPy, its kernel (a header and its source) and its binding.

    CONTRIBUTING.md says so.
    """
    assert files_with(name) == {
        f"src/ingot/graph/ops/{family}.py",
        f"src/ingot/backends/reference/{family}.py",
        f"native/executor/{kernel}.h",
        f"native/executor/{kernel}.cpp",
        f"native/bindings/ops_{family}.cpp",
    }


@pytest.mark.parametrize("loop", ["causal_conv", "state_scan"])
def test_a_loop_in_vector_instructions_is_entered_once(loop: str) -> None:
    """The template, its line in the table of kernels, and the operation that calls it."""
    native = {part for part in files_with(loop) if part.startswith("native/")}
    assert native == {
        "native/kernels/recurrent.h",
        "native/isa/table.h",
        "native/isa/kernels.cpp",
        "native/executor/recurrent_ops.cpp",
    }


@pytest.mark.parametrize("name", sorted(OPS))
def test_passes_know_no_operation(name: str) -> None:
    """Checks, fusion, plans, listings, drawings and the hand-over read records by their roles.

    Only the cut of a graph makes operations itself: those at its ends.
    """
    if name in {"Select", "TakeRows"}:
        return
    passes = [*(PACKAGE / "graph").glob("*.py"), *(PACKAGE / "backends" / "cpu").glob("*.py")]
    assert len(passes) > 10
    code = re.compile(rf"\bo\.{name}\b|from ingot\.graph\.ops[\w.]* import [^\n]*\b{name}\b")
    assert [path.name for path in passes if code.search(path.read_text())] == []


def test_every_operation_has_a_definition_or_is_made_of_some() -> None:
    """The reference runs what networks are described in; fusion makes the others."""
    missing = {
        name for name, kind in OPS.items() if compute.dispatch(kind) is compute.dispatch(o.Op)
    }
    assert missing == {
        "ExpertGate", "ExpertMix", "FusedGateRows", "FusedLinear", "FusedNorm", "StoreKv",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(_native.OPERATIONS))
def test_native_records_have_the_same_fields(name: str) -> None:
    own = [field for field, role in OPS[name].roles() if role is not o.Role.LAYER]
    assert sorted(_native.OPERATIONS[name].FIELDS) == sorted(own)


@pytest.mark.parametrize("name", sorted(PARTS))
def test_native_parts_have_the_same_fields(name: str) -> None:
    own = [field for field, _ in PARTS[name].roles()]
    assert sorted(_native.PARTS[name].FIELDS) == sorted(own)


def test_a_record_is_checked_when_it_is_made() -> None:
    make = _native.OPERATIONS["SoftCap"]
    make(source=0, out=1, cap=2.0)
    for wrong in ({"source": 0, "out": 1}, {"source": 0, "out": 1, "cap": "2"}, {"cap": 2.0}):
        with pytest.raises(TypeError):
            make(**wrong)
    with pytest.raises(TypeError):
        make(0, 1, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Negate(o.Op):
    """out = -source: an operation that exists only here."""

    label: ClassVar[str] = "negate"

    source: o.Value = field(metadata=INPUT)
    out: o.Value = field(metadata=OUTPUT)

    @property
    def remarks(self) -> tuple[str, ...]:
        return ("minus",)


@compute.register
def _(op: Negate, step: Step) -> Matrix:
    return -step.value(op.source)


def negated(small: SmallGraph) -> tuple[o.Value, NDArray[np.float32]]:
    """A graph of two layers, each of which negates."""
    rows = small.random(5, 8)
    value = small.embed(rows)
    for layer in range(2):
        out = o.Value(f"blk.{layer}.out", 8)
        small.ops.append(Negate(source=value, out=out, layer=layer))
        value = out
    return small.select(value), rows


def test_passes_and_the_reference_run_a_new_operation(tmp_path: Path) -> None:
    small = SmallGraph()
    logits, rows = negated(small)
    graph, model = small.build(logits, tmp_path / "small.gguf")
    with model:
        np.testing.assert_array_equal(Reference(graph, model).forward([3, 1]), rows[[3, 1]])
        parts = cut(graph, 1)
        first = Reference(parts.first, model).forward([3, 1])
        np.testing.assert_array_equal(first, -rows[[3, 1]])
        listed = GraphListing.of(fuse(graph)).ops
        assert [(op.kind, op.remarks, op.layer) for op in listed[1:3]] == [
            ("negate", ("minus",), 0),
            ("negate", ("minus",), 1),
        ]
        assert [section.title for section in Drawing.of(GraphListing.of(graph)).sections] == [
            *("", "layers 0 to 1, x 2", ""),
        ]
        with pytest.raises(ModelError, match="the CPU backend has no Negate"):
            Runner(graph, model)
    wrong = Negate(source=small.ops[0].outputs[0], out=o.Value("narrow", 7))
    with pytest.raises(GraphError, match="Negate of narrow: sizes do not fit"):
        ComputationGraph((small.ops[0], wrong), logits, (), 8)
