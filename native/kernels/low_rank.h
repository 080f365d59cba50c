// The second product of an adapter: out += low @ up.T, where a token has a few numbers in `low`.
//
// Lanes run along the outputs, so that no sum crosses lanes: a rank is too short for that. `up` is
// stored in panels of kUpPanel outputs, [panels][rank][kUpPanel], so that what a piece of work
// reads is contiguous. A token's sums run over the rank in order, whoever shares the task.
#pragma once

#include <algorithm>

#include "kernels/linear_float.h"
#include "kernels/tasks.h"

namespace ingot::INGOT_ISA {

// One panel for kTokens tokens; out[0] is the panel's first output.
template <class Value, int kTokens>
inline void add_up_panel(const uint8_t* panel, int64_t rank, const float* low, int64_t low_stride,
                         float* out, int64_t out_stride) {
  constexpr int kVectors = kUpPanel / simd::kLanes;
  simd::Floats sum[kTokens][kVectors];
  for (int t = 0; t < kTokens; ++t)
    for (int v = 0; v < kVectors; ++v)
      sum[t][v] = simd::load_floats(out + t * out_stride + v * simd::kLanes);
  for (int64_t k = 0; k < rank; ++k, panel += kUpPanel * sizeof(Value)) {
    for (int v = 0; v < kVectors; ++v) {
      const simd::Floats up = load_as_floats<Value>(panel + v * simd::kLanes * sizeof(Value));
      for (int t = 0; t < kTokens; ++t)
        sum[t][v] = simd::multiply_add(simd::splat_float(low[t * low_stride + k]), up, sum[t][v]);
    }
  }
  for (int t = 0; t < kTokens; ++t)
    for (int v = 0; v < kVectors; ++v)
      simd::store(out + t * out_stride + v * simd::kLanes, sum[t][v]);
}

// A panel for all tokens of a task, four at once.
template <class Value>
inline void add_up_tokens(const uint8_t* panel, const LowRankTask& task, float* out,
                          int64_t out_stride) {
  constexpr int kTokens = 4;
  const auto low = [&](int64_t token) { return task.low + token * task.low_stride; };
  int64_t t = 0;
  for (; t + kTokens <= task.tokens; t += kTokens)
    add_up_panel<Value, kTokens>(panel, task.rank, low(t), task.low_stride, out + t * out_stride,
                                 out_stride);
  for (; t < task.tokens; ++t)
    add_up_panel<Value, 1>(panel, task.rank, low(t), 0, out + t * out_stride, 0);
}

template <class Value>
void add_up(const LowRankTask& task) {
  const int64_t panel_bytes = task.rank * kUpPanel * static_cast<int64_t>(sizeof(Value));
  const uint8_t* panel = task.up + task.begin / kUpPanel * panel_bytes;
  int64_t at = 0;
  for (; at + kUpPanel <= task.end - task.begin; at += kUpPanel, panel += panel_bytes)
    add_up_tokens<Value>(panel, task, task.out + at, task.out_stride);
  const int64_t rest = task.end - task.begin - at;
  if (rest == 0) return;
  // The last panel goes beyond the outputs.
  for (int64_t t = 0; t < task.tokens; ++t) {
    float row[kUpPanel] = {}, *out = task.out + t * task.out_stride + at;
    std::copy_n(out, rest, row);
    add_up_panel<Value, 1>(panel, task.rank, task.low + t * task.low_stride, 0, row, 0);
    std::copy_n(row, rest, out);
  }
}

}  // namespace ingot::INGOT_ISA
