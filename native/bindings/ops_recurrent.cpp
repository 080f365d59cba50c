// Records of recurrent operations: ingot.graph.ops.recurrent.
#include "bindings/program.h"

namespace ingot {
namespace {

void add_states(Program& program, const StatePlace& place) {
  program.add_group(place.group, static_cast<int64_t>(place.pool.size()) / place.block_bytes, true);
}

struct CausalConv : Operation {
  int source, out;
  Floats weight;
  std::optional<Floats> bias;
  bool silu;
  StatePlace state;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(source), to = program.at(out);
    same_shape({from, to});
    const int64_t channels = from.width, taps = length(weight) / channels;
    if (taps < 1 || taps * channels != length(weight) || (bias && length(*bias) != channels) ||
        has_selected(from))
      refuse("a convolution that does not fit its channels");
    program.add(std::make_unique<CausalConvOp>(CausalConvOp::Spec{
        from, to, weight.data(), data(bias), silu, taps, state.ref((taps - 1) * channels)}));
    add_states(program, state);
  }
};

struct StateScan : Operation {
  int x, step, b, c, out;
  Floats decay, skip;
  int64_t groups;
  StatePlace state;

  void add_to(Program& program) const override {
    StateScanOp::Spec spec{
        program.at(x), program.at(step), program.at(b), program.at(c), program.at(out),
        decay.data(),  skip.data(),      false,         groups,        {}};
    same_shape({spec.x, spec.out});
    same_shape({spec.b, spec.c});
    if (has_selected(spec.x) || has_selected(spec.step) || has_selected(spec.b))
      refuse("a state space of selected rows");
    const int64_t heads = spec.step.width;
    if (groups < 1 || heads % groups || spec.b.width % groups || spec.x.width % heads)
      refuse("a state space whose heads and groups do not go together");
    spec.one_decay = length(decay) == heads;
    if ((!spec.one_decay && length(decay) != heads * spec.states()) || length(skip) != heads)
      refuse("a state space of the wrong sizes");
    spec.state = state.ref(groups * spec.vectors() * kLanes * spec.states());
    program.add(std::make_unique<StateScanOp>(spec));
    add_states(program, state);
  }
};

struct DeltaRule : Operation {
  int query, key, value, step, rate, out;
  Floats decay, bias;
  int64_t key_heads;
  bool tiled;
  float epsilon;
  StatePlace state;

  void add_to(Program& program) const override {
    DeltaRuleOp::Spec spec{program.at(query), program.at(key), program.at(value), program.at(step),
                           program.at(rate),  program.at(out), decay.data(),      bias.data(),
                           key_heads,         tiled,           epsilon,           {}};
    same_shape({spec.query, spec.key});
    same_shape({spec.value, spec.out});
    same_shape({spec.step, spec.rate});
    if (has_selected(spec.key) || has_selected(spec.value) || has_selected(spec.step))
      refuse("a delta rule of selected rows");
    const int64_t heads = spec.heads();
    if (key_heads < 1 || heads % key_heads || spec.key.width % key_heads ||
        spec.value.width % heads || length(decay) != heads || length(bias) != heads)
      refuse("a delta rule whose heads do not go together");
    spec.state = state.ref(heads * spec.vectors() * spec.key_size() * kLanes);
    program.add(std::make_unique<DeltaRuleOp>(spec));
    add_states(program, state);
  }
};

}  // namespace
}  // namespace ingot

using namespace ingot;

void bind_recurrent_operations(nb::module_& module) {
  bind_operation(module, "CausalConv", Field{"source", &CausalConv::source},
                 Field{"out", &CausalConv::out}, Field{"weight", &CausalConv::weight},
                 Field{"bias", &CausalConv::bias}, Field{"silu", &CausalConv::silu},
                 Field{"state", &CausalConv::state});
  bind_operation(module, "StateScan", Field{"x", &StateScan::x}, Field{"step", &StateScan::step},
                 Field{"b", &StateScan::b}, Field{"c", &StateScan::c},
                 Field{"out", &StateScan::out}, Field{"decay", &StateScan::decay},
                 Field{"skip", &StateScan::skip}, Field{"groups", &StateScan::groups},
                 Field{"state", &StateScan::state});
  bind_operation(module, "DeltaRule", Field{"query", &DeltaRule::query},
                 Field{"key", &DeltaRule::key}, Field{"value", &DeltaRule::value},
                 Field{"step", &DeltaRule::step}, Field{"rate", &DeltaRule::rate},
                 Field{"out", &DeltaRule::out}, Field{"decay", &DeltaRule::decay},
                 Field{"bias", &DeltaRule::bias}, Field{"key_heads", &DeltaRule::key_heads},
                 Field{"tiled", &DeltaRule::tiled}, Field{"epsilon", &DeltaRule::epsilon},
                 Field{"state", &DeltaRule::state});
}
