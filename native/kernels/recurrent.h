// Kernels of recurrent operations: channels in lanes of sixteen, tokens one after the other.
//
// A token's result depends on the state before it and on nothing else, so a text may be cut into
// steps anywhere.
#pragma once

#include <cstdint>

#include "kernels/rowwise.h"
#include "kernels/tasks.h"
#include "simd/floats.h"

namespace ingot::INGOT_ISA {

// out[t] = bias + sum over j of weight[j] * source[t - taps + 1 + j], or silu of that
inline void causal_conv(const ConvTask& task) {
  const int64_t before = task.taps - 1, width = task.channels;
  for (int64_t t = 0; t < task.tokens; ++t) {
    for (int64_t i = task.begin; i < task.end; i += 16) {
      const int64_t rest = task.end - i;
      const auto at = [&](const float* p) {
        return rest >= 16 ? F32x16::load(p + i) : simd::load_part(p + i, rest);
      };
      F32x16 sum = at(task.bias);
      for (int64_t j = 0; j < task.taps; ++j) {
        const int64_t row = t + j - before;
        const float* x = row < 0 ? task.past + (before + row) * width : task.source + row * width;
        sum = simd::fma(at(task.weight + j * width), at(x), sum);
      }
      const F32x16 y = task.silu ? activation(Activation::SILU, sum) : sum;
      float* out = task.out + t * width + i;
      if (rest >= 16)
        y.store(out);
      else
        simd::store_part(out, y, rest);
    }
  }
}

// The step of every lane's head.
inline F32x16 lane_steps(const ScanTask& task, const float* steps) {
  if (task.head_size % kLanes == 0) return F32x16::splat(steps[task.first / task.head_size]);
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < task.channels; ++i) lanes[i] = steps[(task.first + i) / task.head_size];
  return F32x16::load(lanes);
}

template <bool kOneDecay>
inline void scan_tokens(const ScanTask& task) {
  const F32x16 skip = F32x16::load(task.skip), one = F32x16::load(task.decay);
  for (int64_t t = 0; t < task.tokens; ++t) {
    const F32x16 step = lane_steps(task, task.step + t * task.step_stride);
    const F32x16 x = simd::load_part(task.x + t * task.stride, task.channels);
    const F32x16 moved = step * x, common = simd::exp(step * one);
    const float *b = task.b + t * task.state_stride, *c = task.c + t * task.state_stride;
    // Two running sums, so that one addition need not wait for the last.
    F32x16 seen[2] = {skip * x, F32x16::splat(0)};
    for (int64_t n = 0; n < task.states; ++n) {
      F32x16 decay = common;
      if constexpr (!kOneDecay) decay = simd::exp(step * F32x16::load(task.decay + n * kLanes));
      float* own = task.state + n * kLanes;
      const F32x16 h = simd::fma(decay, F32x16::load(own), moved * F32x16::splat(b[n]));
      h.store(own);
      seen[n % 2] = simd::fma(h, F32x16::splat(c[n]), seen[n % 2]);
    }
    simd::store_part(task.out + t * task.stride, seen[0] + seen[1], task.channels);
  }
}

// h = exp(step * decay) * h + step * b * x;  out = h . c + skip * x
inline void state_scan(const ScanTask& task) {
  task.one_decay ? scan_tokens<true>(task) : scan_tokens<false>(task);
}

}  // namespace ingot::INGOT_ISA
