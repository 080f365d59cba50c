// Attention over latents that are expanded: of each block of the cache the keys and values of one
// head are made, and all rows of the task attend to them.
//
// A latent's key and value depend on the latent and the head's matrices alone, and a row's
// arithmetic on its query and the blocks it sees, so that a token's result is the same in any
// company and in any chunk of its prompt.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"

namespace ingot::INGOT_ISA {

// Rows of a product whose sums stay in registers, two vectors of each.
inline constexpr int kProductRows = simd::kLanes == 16 ? 8 : 2;

// out[row][column] = the sum over i of left[i][row] * right[i][column], for kRows rows and 32
// columns
template <int kRows>
INGOT_FLATTEN inline void multiply_rows(const float* left, int64_t left_stride, const float* right,
                                        int64_t right_stride, int64_t count, float* out,
                                        int64_t out_stride) {
  F32x16 lo[kRows], hi[kRows];
  repeat<kRows>([&](auto r) { lo[r] = hi[r] = F32x16::splat(0); });
  for (int64_t i = 0; i < count; ++i) {
    const F32x16 right_lo = F32x16::load(right + i * right_stride);
    const F32x16 right_hi = F32x16::load(right + i * right_stride + 16);
    repeat<kRows>([&](auto r) {
      const F32x16 one = F32x16::splat(left[i * left_stride + r]);
      lo[r] = simd::fma(one, right_lo, lo[r]);
      hi[r] = simd::fma(one, right_hi, hi[r]);
    });
  }
  repeat<kRows>([&](auto r) {
    lo[r].store(out + r * out_stride);
    hi[r].store(out + r * out_stride + 16);
  });
}

// The same for any rows and a multiple of 32 columns.
inline void multiply_turned(const float* left, int64_t rows, const float* right, int64_t columns,
                            int64_t count, float* out) {
  for (int64_t column = 0; column < columns; column += 32)
    for (int64_t row = 0; row < rows; row += kProductRows)
      with_count<kProductRows>(static_cast<int>(std::min<int64_t>(kProductRows, rows - row)),
                               [&](auto n) {
                                 multiply_rows<n>(left + row, rows, right + column, columns, count,
                                                  out + row * columns + column, columns);
                               });
}

inline void attend_expanded(const ExpandedTask& task) {
  const AttendTask& attend = task.attend;
  const int64_t own = attend.head_size - task.rotary;
  const int64_t stored = task.rotary + task.latent;
  float* latents = attend.scratch;                   // [rotary + latent][kBlock]
  float* keys = latents + stored * kBlock;           // [rotary + own][kBlock]
  float* values = keys + attend.head_size * kBlock;  // [kBlock][value_size]
  const float* mapped = latents + task.rotary * kBlock;
  for (int i = 0; i < attend.tokens; ++i) attend.row[i] = {-INFINITY, 0.0f};
  std::fill_n(attend.mix, attend.tokens * attend.value_size, 0.0f);
  for (int64_t start = attend.begin; start < attend.end; start += kBlock) {
    const uint8_t* block = attend.pool + attend.table[start / kBlock] * attend.block_bytes;
    decode_keys(attend.type, stored, block + attend.key_offset, latents);
    std::copy_n(latents, task.rotary * kBlock, keys);
    multiply_turned(task.key_map, own, mapped, kBlock, task.latent, keys + task.rotary * kBlock);
    multiply_turned(mapped, kBlock, task.value_map, attend.value_size, task.latent, values);
    attend_block(attend, start, DecodedNumbers{keys}, DecodedNumbers{values});
  }
}

}  // namespace ingot::INGOT_ISA
