// The gated delta rule: a matrix for each head that every token corrects, and reads.
//
// Columns of the matrix do not depend on each other. So a task is sixteen of them, in lanes, for
// all tokens of a sequence: its part of the matrix (8 KB for keys of 128 elements) stays in the
// nearest cache, as it would in a form that works on chunks of tokens, and a text may be cut into
// steps anywhere without changing one bit.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/rowwise.h"
#include "kernels/tasks.h"
#include "simd/floats.h"

namespace ingot::INGOT_ISA {

// 1 / the length of a query or key
inline float inverse_length(const float* x, int64_t n, float epsilon) {
  return 1.0f / std::sqrt(sum_row(n, x, [](F32x16 v) { return v * v; }) + epsilon);
}

// Sums that run side by side, so that none waits for the last.
inline constexpr int kDeltaSums = 4;

// The sum of what body(n, sum so far) adds for every row of a state; what does not fill the sums
// goes to the first.
template <class Body>
inline F32x16 sum_rows(int64_t rows, Body body) {
  F32x16 sums[kDeltaSums];
  for (F32x16& sum : sums) sum = F32x16::splat(0.0f);
  int64_t n = 0;
  for (; n + kDeltaSums <= rows; n += kDeltaSums)
    for (int i = 0; i < kDeltaSums; ++i) sums[i] = body(n + i, sums[i]);
  for (; n < rows; ++n) sums[0] = body(n, sums[0]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// With keys and queries of length 1, a = exp(softplus(step + bias) * decay), r = sigmoid(rate):
//   s = a * s + k * r * (v - k . a s);  out = scale * q . s
inline void delta_rule(const DeltaTask& task) {
  const int64_t size = task.key_size;
  for (int64_t t = 0; t < task.tokens; ++t) {
    const float *query = task.query + t * task.key_stride, *key = task.key + t * task.key_stride;
    const float key_scale = inverse_length(key, size, task.epsilon);
    const float query_scale = inverse_length(query, size, task.epsilon) * task.scale;
    const F32x16 step = F32x16::splat(task.step[t * task.head_stride] + task.bias);
    const F32x16 rate =
        activation(Activation::SIGMOID, F32x16::splat(task.rate[t * task.head_stride]));
    const F32x16 kept =
        simd::exp(activation(Activation::SOFTPLUS, step) * F32x16::splat(task.decay));
    const F32x16 found = sum_rows(size, [&](int64_t n, F32x16 sum) {
      return simd::fma(F32x16::splat(key[n]), F32x16::load(task.state + n * kLanes), sum);
    });
    const F32x16 known = found * kept * F32x16::splat(key_scale);
    const F32x16 value = simd::load_part(task.value + t * task.value_stride, task.lanes);
    const F32x16 change = (value - known) * rate * F32x16::splat(key_scale);
    const F32x16 seen = sum_rows(size, [&](int64_t n, F32x16 sum) {
      float* own = task.state + n * kLanes;
      const F32x16 s = simd::fma(F32x16::splat(key[n]), change, F32x16::load(own) * kept);
      s.store(own);
      return simd::fma(F32x16::splat(query[n]), s, sum);
    });
    simd::store_part(task.out + t * task.value_stride, seen * F32x16::splat(query_scale),
                     task.lanes);
  }
}

}  // namespace ingot::INGOT_ISA
