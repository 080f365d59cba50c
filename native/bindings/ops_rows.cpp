// Records of the operations on rows: ingot.graph.ops.rows.
#include "bindings/program.h"

namespace ingot {
namespace {

void check_table(const Program& program, const WeightRef& table, const ValueRef& value) {
  if (value.width != table.columns) refuse("an embedding of another width than its value");
  if (!program.kernels.decode[static_cast<uint32_t>(table.type)])
    refuse("an embedding of no known type");
}

struct Embed : Operation {
  Matrix weight;
  int out;
  float scale;
  std::optional<Matrix> positions;
  std::optional<Floats> types;

  void add_to(Program& program) const override {
    const ValueRef value = program.at(out);
    EmbedOp::Spec spec{weight.ref(), scale, std::nullopt, data(types), value};
    check_table(program, spec.weight, value);
    if (positions) {
      spec.positions = positions->ref();
      check_table(program, *spec.positions, value);
      if (spec.positions->rows < program.max_positions)
        refuse("a context of " + std::to_string(program.max_positions) + " tokens for " +
               std::to_string(spec.positions->rows) + " learned positions");
    }
    if (types && (types->size() == 0 || length(*types) % value.width))
      refuse("an embedding of another width than its value");
    int64_t& ids = program.batch.token_ids;  // that all embeddings have
    ids = ids ? std::min(ids, weight.rows) : weight.rows;
    if (types) program.batch.types = length(*types) / value.width;
    program.add_adaptable(std::make_unique<EmbedOp>(std::move(spec), program.threads()));
  }
};

struct TakeRows : Operation {
  int out;

  void add_to(Program& program) const override {
    const ValueRef value = program.at(out);
    if (has_selected(value)) refuse("rows that are taken are those of all tokens");
    program.batch.taken_width = value.width;
    program.add(std::make_unique<TakeRowsOp>(value));
  }
};

struct FusedNorm : Operation {
  int source, out;
  Normalization norm;
  std::optional<int> residual;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(source), to = program.at(out);
    const std::optional<ValueRef> added = program.at(residual);
    same_shape({from, added.value_or(to), to});
    program.add(std::make_unique<NormOp>(program.norm(norm, from), from, added, to));
  }
};

struct Activate : Operation {
  int gate, out;
  Activation kind;
  std::optional<int> up;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(gate), to = program.at(out);
    const std::optional<ValueRef> factor = program.at(up);
    same_shape({from, factor.value_or(to), to});
    program.add(std::make_unique<ActivateOp>(from, factor, kind, to));
  }
};

struct FusedGateRows : Operation {
  int source, gate, out;
  bool sigmoid;
  std::optional<int> residual;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(source), by = program.at(gate), to = program.at(out);
    const std::optional<ValueRef> added = program.at(residual);
    same_shape({from, added.value_or(to), to});
    if (by.width != 1 || has_selected(by) != has_selected(to))
      refuse("a gate that is not one number a row");
    program.add(std::make_unique<GateRowsOp>(from, by, sigmoid, added, to));
  }
};

struct Add : Operation {
  int left, right, out;

  void add_to(Program& program) const override {
    const ValueRef one = program.at(left), other = program.at(right), to = program.at(out);
    same_shape({one, other, to});
    program.add(std::make_unique<AddOp>(one, other, to));
  }
};

struct Scale : Operation {
  int source, out;
  float factor;
  std::optional<Floats> weight;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(source), to = program.at(out);
    same_shape({from, to});
    const bool single = weight && length(*weight) == 1;
    if (weight && !single && length(*weight) != to.width)
      refuse("a scale of another width than its value");
    program.add(std::make_unique<ScaleOp>(ScaleOp::Spec{from, to, factor, data(weight), single}));
  }
};

struct KeepPeaks : Operation {
  int source, out;
  float deviations;

  void add_to(Program& program) const override {
    same_shape({program.at(source), program.at(out)});
    program.add(std::make_unique<KeepPeaksOp>(program.at(source), deviations, program.at(out)));
  }
};

struct Xielu : Operation {
  int source, out;
  float rise, fall, slope;

  void add_to(Program& program) const override {
    same_shape({program.at(source), program.at(out)});
    program.add(std::make_unique<XieluOp>(
        XieluOp::Spec{program.at(source), program.at(out), rise, fall, slope}));
  }
};

struct Temper : Operation {
  int source, out;
  double scale;
  int64_t length, offset;

  void add_to(Program& program) const override {
    same_shape({program.at(source), program.at(out)});
    if (has_selected(program.at(source))) refuse("a temperature of selected rows");
    if (length < 1 || offset < 0) refuse("a temperature of no positions");
    program.add(std::make_unique<TemperOp>(
        TemperOp::Spec{program.at(source), program.at(out), scale, length, offset}));
  }
};

struct Select : Operation {
  int source, out;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(source), to = program.at(out);
    if (has_selected(from) || !has_selected(to) || from.width != to.width)
      refuse("a selection takes rows of all tokens to rows of the wanted ones");
    program.add(std::make_unique<SelectOp>(from, to));
  }
};

struct SoftCap : Operation {
  int source, out;
  float cap;

  void add_to(Program& program) const override {
    same_shape({program.at(source), program.at(out)});
    program.add(std::make_unique<SoftCapOp>(program.at(source), cap, program.at(out)));
  }
};

}  // namespace
}  // namespace ingot

using namespace ingot;

void bind_row_operations(nb::module_& module) {
  bind_operation(module, "Embed", Field{"weight", &Embed::weight}, Field{"out", &Embed::out},
                 Field{"scale", &Embed::scale}, Field{"positions", &Embed::positions},
                 Field{"types", &Embed::types});
  bind_operation(module, "TakeRows", Field{"out", &TakeRows::out});
  bind_operation(module, "FusedNorm", Field{"source", &FusedNorm::source},
                 Field{"norm", &FusedNorm::norm}, Field{"residual", &FusedNorm::residual},
                 Field{"out", &FusedNorm::out});
  bind_operation(module, "Activate", Field{"gate", &Activate::gate}, Field{"out", &Activate::out},
                 Field{"kind", &Activate::kind}, Field{"up", &Activate::up});
  bind_operation(module, "FusedGateRows", Field{"source", &FusedGateRows::source},
                 Field{"gate", &FusedGateRows::gate}, Field{"sigmoid", &FusedGateRows::sigmoid},
                 Field{"residual", &FusedGateRows::residual}, Field{"out", &FusedGateRows::out});
  bind_operation(module, "Add", Field{"left", &Add::left}, Field{"right", &Add::right},
                 Field{"out", &Add::out});
  bind_operation(module, "Scale", Field{"source", &Scale::source}, Field{"out", &Scale::out},
                 Field{"factor", &Scale::factor}, Field{"weight", &Scale::weight});
  bind_operation(module, "KeepPeaks", Field{"source", &KeepPeaks::source},
                 Field{"out", &KeepPeaks::out}, Field{"deviations", &KeepPeaks::deviations});
  bind_operation(module, "Xielu", Field{"source", &Xielu::source}, Field{"out", &Xielu::out},
                 Field{"rise", &Xielu::rise}, Field{"fall", &Xielu::fall},
                 Field{"slope", &Xielu::slope});
  bind_operation(module, "Temper", Field{"source", &Temper::source}, Field{"out", &Temper::out},
                 Field{"scale", &Temper::scale}, Field{"length", &Temper::length},
                 Field{"offset", &Temper::offset});
  bind_operation(module, "Select", Field{"source", &Select::source}, Field{"out", &Select::out});
  bind_operation(module, "SoftCap", Field{"source", &SoftCap::source}, Field{"out", &SoftCap::out},
                 Field{"cap", &SoftCap::cap});
}
