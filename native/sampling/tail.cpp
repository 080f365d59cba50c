#include "sampling/tail.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ingot::sampling {
namespace {

// How many of the likeliest reach a share of all that are there.
size_t reaching(const RowKernels& kernels, const std::vector<float>& logits, double share) {
  std::vector<double> probabilities(logits.size());
  softmax_row(kernels, logits.data(), static_cast<int64_t>(logits.size()), probabilities.data());
  double sum = 0.0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    sum += probabilities[i];
    if (sum >= share) return i + 1;
  }
  return logits.size();
}

}  // namespace

RowState sample_row(const RowKernels& kernels, const float* row, int64_t size, const Tail& tail,
                    std::vector<Candidate>& scratch, int32_t& token) {
  scratch.clear();
  const RowState state = select_top(kernels, row, size, tail.count, scratch);
  if (state != RowState::kUsable) return state;
  token = scratch[0].id;
  if (scratch.size() == 1 || tail.temperature < std::numeric_limits<float>::min()) return state;

  // Largest first, so every cut leaves a beginning.
  std::vector<float> logits(scratch.size());
  for (size_t i = 0; i < scratch.size(); ++i) logits[i] = scratch[i].logit;
  const auto cut = [&](size_t count) {
    logits.resize(std::min(std::max(count, static_cast<size_t>(tail.least)), logits.size()));
  };
  if (tail.share <= 1.0) cut(reaching(kernels, logits, tail.share));
  if (std::isfinite(tail.distance)) {
    const auto threshold = static_cast<float>(logits[0] - tail.distance);
    cut(static_cast<size_t>(std::count_if(logits.begin(), logits.end(),
                                          [&](float logit) { return logit >= threshold; })));
  }
  if (tail.temperature != 1.0f) {
    const float largest = logits[0];
    for (float& logit : logits) logit = (logit - largest) / tail.temperature;
  }
  int64_t index = 0;
  const RowState drawn = draw_from_row(kernels, logits.data(), static_cast<int64_t>(logits.size()),
                                       tail.uniform, index);
  token = scratch[static_cast<size_t>(index)].id;
  return drawn;
}

}  // namespace ingot::sampling
