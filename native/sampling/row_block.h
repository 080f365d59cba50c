// What the passes over a row of logits (sampling/row.h) have in common with their callers.
#pragma once

#include <cstdint>

namespace ingot {

// Values per block: a block that cannot hold a top token is skipped by its maximum.
// 256 was as fast as 64 to 1024 at k = 40 on 152k values, within 10%.
inline constexpr int64_t kRowBlock = 256;

constexpr int64_t row_blocks(int64_t count) { return (count + kRowBlock - 1) / kRowBlock; }

struct RowMoments {
  double count, sum, squares;
};

// One build of the passes.
struct RowKernels {
  bool (*maxima)(const float* row, int64_t count, float* maxima);
  void (*exponentials)(const float* row, int64_t count, float shift, double* sums,
                       double* weighted);
  RowMoments (*moments)(const float* row, int64_t count, float shift);
  void (*exp)(const double* x, int64_t count, double* out);
  void (*log)(const double* x, int64_t count, double* out);
};

}  // namespace ingot
