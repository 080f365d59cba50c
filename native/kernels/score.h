// What positions are worth to a token, by the keys of an indexer in the paged cache.
//
// A position's score depends on the token and the position's block alone, not on where the walk
// begins or ends.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"

namespace ingot::INGOT_ISA {

inline void score_positions(const ScoreTask& task) {
  const DecodedNumbers keys{task.scratch};
  const F32x16 none = F32x16::splat(0);
  for (int64_t start = task.begin; start < task.end; start += kBlock) {
    const uint8_t* block = task.pool + task.table[start / kBlock] * task.block_bytes;
    decode_keys(task.type, task.head_size, block + task.key_offset, task.scratch);
    F32x16 lo = none, hi = none;
    for (int64_t head = 0; head < task.heads; head += kGroupOfRows) {
      const int count = static_cast<int>(std::min<int64_t>(kGroupOfRows, task.heads - head));
      const float* query[kGroupOfRows];
      for (int i = 0; i < count; ++i) query[i] = task.query + (head + i) * task.head_size;
      alignas(64) float scores[kGroupOfRows][kBlock];
      with_count<kGroupOfRows>(
          count, [&](auto n) { score_floats<n>(query, task.head_size, keys, keys, scores); });
      for (int i = 0; i < count; ++i) {
        const F32x16 weight = F32x16::splat(task.weights[head + i]);
        lo = simd::fma(weight, simd::max(F32x16::load(scores[i]), none), lo);
        hi = simd::fma(weight, simd::max(F32x16::load(scores[i] + 16), none), hi);
      }
    }
    float* out = task.scores + (start - task.begin);
    lo.store(out);
    hi.store(out + 16);
  }
}

}  // namespace ingot::INGOT_ISA
