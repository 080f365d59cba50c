"""A throw-away operation: its record, definition, kernel, binding and case.

`RUN` compares the kernel with the definition; `ON_A_GPU` sees that a GPU refuses it by its name.
"""

from contributing.changed_tree import Change, ChangedTree

RECORD = '''@dataclass(frozen=True, slots=True, kw_only=True)
class Reverse(Op):
    """out = source, each row from its end to its beginning, times scale."""

    label: ClassVar[str] = "reverse"

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    scale: float


'''
DEFINITION = """@compute.register
def _(op: o.Reverse, step: Step) -> Matrix:
    return step.value(op.source)[:, ::-1] * step.dtype(op.scale)


"""
DECLARED = """// out = scale * source, each row from its end to its beginning
class ReverseOp : public Op {
 public:
  ReverseOp(ValueRef source, float scale, ValueRef out)
      : source_(source), scale_(scale), out_(out) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const ValueRef source_;
  const float scale_;
  const ValueRef out_;
  Queue queue_;
};

"""
WRITTEN = """void ReverseOp::run(const Step& step, int) {
  for (int64_t t; (t = queue_.claim(step.rows(out_))) >= 0;) {
    const float* from = step.row(source_, t);
    float* to = step.row(out_, t);
    for (int64_t i = 0; i < out_.width; ++i) to[i] = scale_ * from[out_.width - 1 - i];
  }
}

"""
STRUCT = """struct Reverse : Operation {
  int source, out;
  float scale;

  void add_to(Program& program) const override {
    same_shape({program.at(source), program.at(out)});
    program.add(std::make_unique<ReverseOp>(program.at(source), scale, program.at(out)));
  }
};

"""
BOUND = """  bind_operation(module, "Reverse", Field{"source", &Reverse::source},
                 Field{"out", &Reverse::out}, Field{"scale", &Reverse::scale});
"""
MAKE_CASE = """def reversed_rows(small: SmallGraph, width: int) -> o.Value:
    x = small.embed(small.random(5, width))
    out = small.value(width)
    small.ops.append(o.Reverse(source=x, out=out, scale=0.5))
    return small.select(out)


"""
CASE = """    *(
        RowsCase(name=f"reverse-{n}", make=partial(reversed_rows, width=n), error=COPIED)
        for n in WIDTHS
    ),
"""
RUN = """
import sys
from pathlib import Path

import numpy as np

from ingot import _native
from ingot.backends.reference import Reference
from ops.cpu import check
from ops.small_graph import SmallGraph
from ops.table import TABLE
from ops.test_reference import test_operation
from ops.rows import reversed_rows

assert _native.OPERATIONS["Reverse"].FIELDS
folder = Path(sys.argv[1])
small = SmallGraph()
logits = reversed_rows(small, 3)
graph, model = small.build(logits, folder / "small.gguf")
with model:
    rows = Reference(graph, model).forward([0, 1, 2, 3, 4])
    embedded = model.tensors["weight0"].data.view(np.float32).reshape(5, 3)
    np.testing.assert_array_equal(rows, embedded[:, ::-1] / 2)
cases = [case for case in TABLE if str(case).startswith("reverse-")]
assert len(cases) > 5
for case in cases:
    test_operation(case, folder)  # the definition, before and after fusion
    check(case, folder)  # the kernel
"""
ON_A_GPU = """
from ingot.backends.gpu.lowering import missing
from ingot.graph import ops as o

value = o.Value("value", 3)
assert missing(o.Reverse(source=value, out=value, scale=1.0)) == "Reverse"
assert missing(o.Select(source=value, out=value)) is None
"""


def add_operation(tree: ChangedTree) -> Change:
    """Add it to a copy of the sources."""
    change = tree.follow("Add an operation", "rows")
    record = "src/ingot/graph/ops/rows.py"
    change.insert(record, '    "Select",\n', '    "Reverse",\n')
    change.insert(record, "@dataclass(frozen=True, slots=True, kw_only=True)\nclass Select", RECORD)
    change.insert(
        "src/ingot/backends/reference/rows.py",
        "@compute.register\ndef _(op: o.Select",
        DEFINITION,
    )
    change.insert("native/executor/ops.h", "// out = cap * tanh(source / cap)\n", DECLARED)
    change.insert("native/executor/ops.cpp", "void SoftCapOp::run(", WRITTEN)
    binding = "native/bindings/ops_rows.cpp"
    change.insert(binding, "struct Select : Operation", STRUCT)
    change.insert(binding, '  bind_operation(module, "Select"', BOUND)
    cases = "tests/ops/rows.py"
    change.insert(cases, "def softcap(", MAKE_CASE)
    change.insert(cases, "    *(RowsCase(", CASE)
    return change
