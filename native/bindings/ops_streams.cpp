// Records of operations on several streams of a token: ingot.graph.ops.streams.
#include "bindings/program.h"
#include "executor/stream_ops.h"

namespace ingot {
namespace {

// Whether one row is several of another, of the same tokens.
void check_streams(const ValueRef& all, const ValueRef& one) {
  if (one.width < 1 || all.width % one.width || has_selected(all) != has_selected(one))
    refuse("streams that are not whole");
}

struct StackStreams : Operation {
  int first, others, out;
  float epsilon;

  void add_to(Program& program) const override {
    const StackStreamsOp::Spec spec{program.at(first), program.at(others), program.at(out),
                                    epsilon};
    check_streams(spec.others, spec.first);
    check_streams(spec.out, spec.first);
    if (spec.out.width != spec.first.width + spec.others.width || !(epsilon > 0))
      refuse("streams that are not one and the others");
    program.add(std::make_unique<StackStreamsOp>(spec));
  }
};

struct MixStreams : Operation {
  int source, gains, out;
  int64_t streams;

  void add_to(Program& program) const override {
    const MixStreamsOp::Spec spec{program.at(source), program.at(gains), program.at(out), streams};
    same_shape({spec.source, spec.out});
    if (streams < 1 || spec.source.width % streams || spec.gains.width != streams * streams ||
        has_selected(spec.gains) != has_selected(spec.out))
      refuse("gains that are not one for each pair of streams");
    program.add(std::make_unique<MixStreamsOp>(spec));
  }
};

struct CorrectStreams : Operation {
  int source, row, gains, out;
  int64_t active;

  void add_to(Program& program) const override {
    const CorrectStreamsOp::Spec spec{program.at(source), program.at(row), program.at(gains),
                                      program.at(out), active};
    same_shape({spec.source, spec.out});
    check_streams(spec.source, spec.row);
    if (spec.gains.width * spec.row.width != spec.source.width || active < 0 ||
        active >= spec.gains.width || has_selected(spec.gains) != has_selected(spec.out))
      refuse("gains that are not one for each stream");
    program.add(std::make_unique<CorrectStreamsOp>(spec));
  }
};

struct AddToStreams : Operation {
  int source, row, out;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(source), added = program.at(row), to = program.at(out);
    same_shape({from, to});
    check_streams(from, added);
    program.add(std::make_unique<AddToStreamsOp>(from, added, to));
  }
};

struct MeanStreams : Operation {
  int source, out;

  void add_to(Program& program) const override {
    check_streams(program.at(source), program.at(out));
    program.add(std::make_unique<MeanStreamsOp>(program.at(source), program.at(out)));
  }
};

}  // namespace
}  // namespace ingot

using namespace ingot;

void bind_stream_operations(nb::module_& module) {
  bind_operation(module, "StackStreams", Field{"first", &StackStreams::first},
                 Field{"others", &StackStreams::others}, Field{"out", &StackStreams::out},
                 Field{"epsilon", &StackStreams::epsilon});
  bind_operation(module, "MixStreams", Field{"source", &MixStreams::source},
                 Field{"gains", &MixStreams::gains}, Field{"out", &MixStreams::out},
                 Field{"streams", &MixStreams::streams});
  bind_operation(module, "CorrectStreams", Field{"source", &CorrectStreams::source},
                 Field{"row", &CorrectStreams::row}, Field{"gains", &CorrectStreams::gains},
                 Field{"out", &CorrectStreams::out}, Field{"active", &CorrectStreams::active});
  bind_operation(module, "AddToStreams", Field{"source", &AddToStreams::source},
                 Field{"row", &AddToStreams::row}, Field{"out", &AddToStreams::out});
  bind_operation(module, "MeanStreams", Field{"source", &MeanStreams::source},
                 Field{"out", &MeanStreams::out});
}
