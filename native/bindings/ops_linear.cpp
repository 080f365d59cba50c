// Records of linear maps: ingot.graph.ops.linear.
#include "bindings/program.h"

namespace ingot {
namespace {

struct LinearPartRecord {
  Matrix weight;
  std::optional<Floats> bias;
  float scale;
  std::optional<int> residual;
  int out;
};

struct FusedLinear : Operation {
  int source;
  std::optional<Normalization> norm;
  std::vector<LinearPartRecord> parts;
  std::optional<Activation> activation;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(source);
    LinearOp::Spec spec{from, program.norm(norm, from), {}, activation};
    if (parts.empty()) refuse("a linear map without a matrix");
    if (activation && parts.size() > 2) refuse("an activation of more than gate and up");
    for (const LinearPartRecord& part : parts) spec.parts.push_back(checked(program, part, from));
    program.add_adaptable(std::make_unique<LinearOp>(std::move(spec), program.linear_buffers));
  }

  static LinearPart checked(Program& program, const LinearPartRecord& part, const ValueRef& from) {
    WeightRef weight = part.weight.ref();
    const ValueRef to = program.at(part.out);
    const std::optional<ValueRef> added = program.at(part.residual);
    if (!program.has_linear(weight.type)) refuse("a matrix of a type without kernel");
    if (weight.columns != from.width || weight.rows != to.width)
      refuse("a weight that does not fit between its values");
    if (has_selected(to) != has_selected(from)) refuse("a linear map that selects");
    same_shape({added.value_or(to), to});
    if (part.bias && length(*part.bias) != weight.rows) refuse("a bias of the wrong length");
    weight.copy = program.copies.of(weight, weight.rows);
    return {weight, data(part.bias), part.scale, added, to};
  }
};

}  // namespace
}  // namespace ingot

using namespace ingot;

void bind_linear_operations(nb::module_& module) {
  using Part = LinearPartRecord;
  bind_part(module, "LinearPart", Field{"weight", &Part::weight}, Field{"bias", &Part::bias},
            Field{"scale", &Part::scale}, Field{"residual", &Part::residual},
            Field{"out", &Part::out});
  bind_operation(module, "FusedLinear", Field{"source", &FusedLinear::source},
                 Field{"norm", &FusedLinear::norm}, Field{"parts", &FusedLinear::parts},
                 Field{"activation", &FusedLinear::activation});
}
