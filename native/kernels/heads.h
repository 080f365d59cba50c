// Linear maps of single heads: rows of one head's matrix times that head of several tokens.
//
// A token's result depends on its own input alone: every sum runs over the columns (or rows) in
// the same order, whoever shares the task.
#pragma once

#include <cstdint>

#include "kernels/tasks.h"
#include "simd/floats.h"

namespace ingot::INGOT_ISA {

using simd::F32x16;

// out[token][row] = matrix[row] . x[token], for kTokens tokens from `token` on
template <int kTokens>
inline void map_head_tokens(const HeadTask& task, int64_t token) {
  const float* x = task.x + token * task.x_stride;
  float* out = task.out + token * task.out_stride;
  for (int64_t row = 0; row < task.rows; ++row) {
    const float* weights = task.matrix + row * task.columns;
    F32x16 sum[kTokens];
    for (F32x16& one : sum) one = F32x16::splat(0.0f);
    int64_t i = 0;
    for (; i + 16 <= task.columns; i += 16) {
      const F32x16 weight = F32x16::load(weights + i);
      for (int t = 0; t < kTokens; ++t)
        sum[t] = simd::fma(weight, F32x16::load(x + t * task.x_stride + i), sum[t]);
    }
    if (const int64_t rest = task.columns - i; rest > 0) {
      const F32x16 weight = simd::load_part(weights + i, rest);
      for (int t = 0; t < kTokens; ++t)
        sum[t] = simd::fma(weight, simd::load_part(x + t * task.x_stride + i, rest), sum[t]);
    }
    for (int t = 0; t < kTokens; ++t) out[t * task.out_stride + row] = simd::sum(sum[t]);
  }
}

inline void map_head(const HeadTask& task) {
  int64_t token = 0;
  for (; token + 4 <= task.tokens; token += 4) map_head_tokens<4>(task, token);
  for (; token < task.tokens; ++token) map_head_tokens<1>(task, token);
}

// The same sixteen columns, or `rest` of them, of kTokens results.
template <int kTokens>
inline void add_head_columns(const HeadTask& task, int64_t token, int64_t column, int64_t rest) {
  const float* x = task.x + token * task.x_stride;
  float* out = task.out + token * task.out_stride + column;
  const auto at = [&](const float* p) {
    return rest >= 16 ? F32x16::load(p) : simd::load_part(p, rest);
  };
  F32x16 sum[kTokens];
  for (int t = 0; t < kTokens; ++t) sum[t] = at(out + t * task.out_stride);
  for (int64_t row = 0; row < task.rows; ++row) {
    const F32x16 weight = at(task.matrix + row * task.columns + column);
    for (int t = 0; t < kTokens; ++t)
      sum[t] = simd::fma(F32x16::splat(x[t * task.x_stride + row]), weight, sum[t]);
  }
  for (int t = 0; t < kTokens; ++t) {
    if (rest >= 16)
      sum[t].store(out + t * task.out_stride);
    else
      simd::store_part(out + t * task.out_stride, sum[t], rest);
  }
}

// out[token] += the sum over rows of x[token][row] * matrix[row]
inline void add_head_rows(const HeadTask& task) {
  for (int64_t column = 0; column < task.columns; column += 16) {
    const int64_t rest = task.columns - column;
    int64_t token = 0;
    for (; token + 4 <= task.tokens; token += 4) add_head_columns<4>(task, token, column, rest);
    for (; token < task.tokens; ++token) add_head_columns<1>(task, token, column, rest);
  }
}

}  // namespace ingot::INGOT_ISA
