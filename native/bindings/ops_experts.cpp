// Records of a mixture of experts: ingot.graph.ops.experts.
#include <numeric>

#include "bindings/program.h"

namespace ingot {
namespace {

struct Route : Operation {
  int scores, out;
  int64_t used;
  Gating gating;
  bool normalize;
  float scale, near;
  std::optional<Floats> selection_bias, expert_scales;
  int64_t groups, groups_used, group_best;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(scores), to = program.at(out);
    const int64_t experts = from.width;
    if (used < 1 || used > std::min(experts, kMaxExpertsUsed) || to.width != 2 * used ||
        has_selected(to) != has_selected(from))
      refuse("a choice of " + std::to_string(used) + " of " + std::to_string(experts) + " experts");
    if (selection_bias && length(*selection_bias) != experts) refuse("a bias of the wrong length");
    if (expert_scales && length(*expert_scales) != experts) refuse("scales of the wrong length");
    if (groups < 1 || groups > kMaxExpertGroups || experts % groups || groups_used < 1 ||
        groups_used > groups || used > groups_used * (experts / groups) || group_best < 1 ||
        group_best > experts / groups)
      refuse("groups that do not fit the experts");
    program.expert_buffers.groups.make_room(experts, used, program.max_tokens);
    program.route = {out, experts};
    const RouteOp::Spec spec{from,
                             to,
                             used,
                             gating,
                             normalize,
                             scale,
                             near,
                             data(selection_bias),
                             data(expert_scales),
                             groups,
                             groups_used,
                             group_best};
    program.add(std::make_unique<RouteOp>(spec, program.expert_buffers.groups, program.threads()));
  }
};

struct ExpertPart {
  Matrix weight;
  std::optional<Floats> bias;
  int64_t first, rows;  // of an expert, those that are read

  // The experts of the latest route, one input for all that a token uses or one for each.
  ExpertWeight checked(Program& program, int source, int choice) const {
    if (choice != program.route.choice) refuse("experts must follow the route that chooses them");
    const ValueRef from = program.at(source), by = program.at(choice);
    WeightRef all = weight.ref();
    const int64_t used = by.width / 2, experts = program.route.experts;
    if (!program.has_linear(all.type)) refuse("a matrix of a type without kernel");
    if (all.rows % experts || (from.width != all.columns && from.width != used * all.columns))
      refuse("experts that do not fit between their values");
    if (has_selected(from) != has_selected(by)) refuse("experts that select");
    if (bias && length(*bias) != all.rows) refuse("a bias of the wrong length");
    const int64_t stored = all.rows / experts;
    if (first < 0 || rows < 1 || first + rows > stored) refuse("rows that an expert does not have");
    all.copy = program.copies.of(all, std::gcd(stored, first));
    const ExpertWeight found{all, stored, first, rows, data(bias)};
    program.expert_buffers.make_room(experts, used, all.columns, found.is_float());
    return found;
  }
};

struct ExpertGate : Operation {
  int source, choice, out;
  std::vector<ExpertPart> parts;
  Activation activation;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(source), to = program.at(out);
    if (parts.empty() || parts.size() > 2) refuse("experts are a gate, or a gate and an up");
    std::vector<ExpertWeight> weights;
    for (const ExpertPart& part : parts) {
      weights.push_back(part.checked(program, source, choice));
      if (to.width != program.at(choice).width / 2 * weights.back().rows)
        refuse("experts that do not fit between their values");
    }
    const bool own = from.width != weights[0].all.columns;
    program.add_adaptable(std::make_unique<ExpertGateOp>(from, own, std::move(weights), activation,
                                                         to, program.expert_buffers));
  }
};

struct ExpertMix : Operation {
  int source, choice, out;
  Matrix weight;
  std::optional<Floats> bias;
  std::optional<int> residual;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(source), to = program.at(out);
    const std::optional<ValueRef> added = program.at(residual);
    const ExpertWeight all = ExpertPart{weight, bias, 0, to.width}.checked(program, source, choice);
    if (to.width != all.stored) refuse("experts that do not fit between their values");
    same_shape({added.value_or(to), to});
    program.add_adaptable(std::make_unique<ExpertMixOp>(from, from.width != all.all.columns, all,
                                                        program.at(choice), added, to,
                                                        program.expert_buffers));
  }
};

}  // namespace
}  // namespace ingot

using namespace ingot;

void bind_expert_operations(nb::module_& module) {
  bind_part(module, "ExpertPart", Field{"weight", &ExpertPart::weight},
            Field{"bias", &ExpertPart::bias}, Field{"first", &ExpertPart::first},
            Field{"rows", &ExpertPart::rows});
  bind_operation(module, "Route", Field{"scores", &Route::scores}, Field{"out", &Route::out},
                 Field{"used", &Route::used}, Field{"gating", &Route::gating},
                 Field{"normalize", &Route::normalize}, Field{"scale", &Route::scale},
                 Field{"near", &Route::near}, Field{"selection_bias", &Route::selection_bias},
                 Field{"expert_scales", &Route::expert_scales}, Field{"groups", &Route::groups},
                 Field{"groups_used", &Route::groups_used},
                 Field{"group_best", &Route::group_best});
  bind_operation(module, "ExpertGate", Field{"source", &ExpertGate::source},
                 Field{"choice", &ExpertGate::choice}, Field{"parts", &ExpertGate::parts},
                 Field{"activation", &ExpertGate::activation}, Field{"out", &ExpertGate::out});
  bind_operation(module, "ExpertMix", Field{"source", &ExpertMix::source},
                 Field{"choice", &ExpertMix::choice}, Field{"weight", &ExpertMix::weight},
                 Field{"bias", &ExpertMix::bias}, Field{"residual", &ExpertMix::residual},
                 Field{"out", &ExpertMix::out});
}
