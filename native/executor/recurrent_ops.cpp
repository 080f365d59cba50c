#include "executor/recurrent_ops.h"

#include <algorithm>

namespace ingot {

namespace {

constexpr int64_t kPieceChannels = 256;  // of a convolution
constexpr int64_t kPieceVectors = 8;     // of a state space

}  // namespace

CausalConvOp::CausalConvOp(Spec spec)
    : spec_(spec),
      weight_(spec.taps * spec.source.width),
      no_bias_(spec.bias ? 0 : spec.source.width, 0.0f),
      nothing_((spec.taps - 1) * spec.source.width, 0.0f) {
  const int64_t channels = spec.source.width;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t t = 0; t < spec.taps; ++t)
      weight_[t * channels + c] = spec.weight[c * spec.taps + t];
}

void CausalConvOp::run(const Step& step, int) {
  const int64_t width = spec_.source.width;
  const int64_t pieces = (width + kPieceChannels - 1) / kPieceChannels;
  for (int64_t i; (i = queue_.claim(step.batch.runs * pieces)) >= 0;) {
    const int64_t begin = i % pieces * kPieceChannels;
    convolve(step, step.batch.run[i / pieces], begin, std::min(width, begin + kPieceChannels));
  }
}

void CausalConvOp::convolve(const Step& step, const SequenceRun& run, int64_t begin,
                            int64_t end) const {
  const int64_t width = spec_.source.width, before = spec_.taps - 1;
  const StateWalk walk(step, run, spec_.state);
  const float* source = step.row(spec_.source, run.first);
  const float* past = walk.source() ? walk.source() : nothing_.data();
  const float* bias = spec_.bias ? spec_.bias : no_bias_.data();
  step.kernels.causal_conv({source, past, weight_.data(), bias, spec_.silu, run.count, width,
                            spec_.taps, begin, end, step.row(spec_.out, run.first)});
  // The rows before a token are the state there. The latest is written first and each one's oldest
  // row first: a place that is still read is never overwritten.
  const auto keep = [&](float* state, int64_t tokens) {
    for (int64_t i = 0; i < before; ++i) {
      const int64_t row = tokens - before + i;
      const float* from = row < 0 ? past + (before + row) * width : source + row * width;
      std::copy(from + begin, from + end, state + i * width + begin);
    }
  };
  keep(walk.target(), run.count);
  for (int64_t r = walk.last() - 1; r >= walk.first(); --r)
    if (float* state = walk.kept(r)) keep(state, walk.tokens_to_end_of(r));
}

StateScanOp::StateScanOp(Spec spec)
    : spec_(spec),
      decay_(in_lanes(spec.decay, spec.one_decay ? 1 : spec.states())),
      skip_(in_lanes(spec.skip, 1)) {}

std::vector<float> StateScanOp::in_lanes(const float* rows, int64_t columns) const {
  const int64_t head_size = spec_.x.width / spec_.step.width;
  std::vector<float> lanes(spec_.groups * spec_.vectors() * columns * kLanes, 0.0f);
  for (int64_t channel = 0; channel < spec_.x.width; ++channel) {
    const int64_t group = channel / spec_.group_channels(),
                  place = channel % spec_.group_channels();
    const int64_t vector = group * spec_.vectors() + place / kLanes;
    for (int64_t column = 0; column < columns; ++column)
      lanes[(vector * columns + column) * kLanes + place % kLanes] =
          rows[channel / head_size * columns + column];
  }
  return lanes;
}

void StateScanOp::run(const Step& step, int) {
  const int64_t vectors = spec_.groups * spec_.vectors();
  const int64_t pieces = (vectors + kPieceVectors - 1) / kPieceVectors;
  for (int64_t i; (i = queue_.claim(step.batch.runs * pieces)) >= 0;) {
    const int64_t begin = i % pieces * kPieceVectors;
    for (int64_t v = begin; v < std::min(vectors, begin + kPieceVectors); ++v)
      scan(step, step.batch.run[i / pieces], v);
  }
}

void StateScanOp::scan(const Step& step, const SequenceRun& run, int64_t vector) const {
  const int64_t group = vector / spec_.vectors(), place = vector % spec_.vectors() * kLanes;
  const int64_t first = group * spec_.group_channels() + place;
  const int64_t states = spec_.states(), floats = states * kLanes;
  const StateWalk walk(step, run, spec_.state);
  float* state = walk.start(vector * floats, floats);
  walk.move_on(state, vector * floats, floats, [&](int64_t done, int64_t to) {
    const int64_t token = run.first + done;
    step.kernels.state_scan(
        {to - done, first, std::min(kLanes, spec_.group_channels() - place),
         step.row(spec_.x, token) + first, step.row(spec_.out, token) + first, spec_.x.width,
         step.row(spec_.step, token), spec_.step.width, spec_.x.width / spec_.step.width,
         step.row(spec_.b, token) + group * states, step.row(spec_.c, token) + group * states,
         spec_.b.width, states, decay_.data() + vector * (spec_.one_decay ? kLanes : floats),
         spec_.one_decay, skip_.data() + vector * kLanes, state});
  });
}

}  // namespace ingot
