// The inputs of a matrix product as bytes: 8-bit integers under one scale per 32, and their sums.
//
// llama.cpp has one scale per 256 for weights in blocks of 256; the error is a fifth of that, as KL
// divergence. For weights in blocks of 32 it rounds as these do. There, inputs that lie among
// outliers, and so have lost most, have second bytes: the rounding error of the first, under a
// scale of its own. The tenth of all inputs that has them makes the error a sixth.
#pragma once

#include <cmath>

#include "isa/table.h"
#include "kernels/linear_input.h"

namespace ingot::INGOT_ISA {

inline constexpr int kByteGroup = 32;  // inputs that share a scale
inline constexpr int kByteGroups = kInputBlock / kByteGroup;
inline constexpr int kMostSeconds = 4;  // groups of a block with second bytes

// The rounding errors of a group.
struct SecondBytes {
  int8_t values[kByteGroup];  // error = scale * value
  float scale;
  int32_t total;  // the sum of the values
};

// 256 inputs of a column, as large as an InputBlock, so that both have the same stride.
struct alignas(64) ByteBlock {
  int8_t values[kInputBlock];  // x = scale * value
  float scale[kByteGroups];    // of 32 values
  float sum32[kByteGroups];    // scale * the sum of 32 values
  float sum16[kInputBlock / 16];
  int16_t total32[kByteGroups];  // the sum of 32 values
  int16_t total16[kInputBlock / 16];
  SecondBytes second[kMostSeconds];  // of the groups in `seconds`, in order
  uint32_t seconds;                  // bit g: group g has second bytes
  uint8_t unused[sizeof(InputBlock) - 596];
};
static_assert(sizeof(ByteBlock) == sizeof(InputBlock));

// Of one column: words, and bytes.
inline int64_t both_quantized_bytes(int64_t width) { return 2 * quantized_bytes(width); }

inline const ByteBlock* byte_blocks(const LinearInput& input) {
  return reinterpret_cast<const ByteBlock*>(input.bytes);
}

INGOT_FLATTEN inline void quantize_bytes(const float* x, ByteBlock& block) {
  int32_t largest[kInputBlock / 16], total[kInputBlock / 16];
  largest_bits(x, largest);
  InputScale scale[kByteGroups];
  for (int g = 0; g < kByteGroups; ++g) {
    scale[g] = input_scale<127>(std::max(largest[2 * g], largest[2 * g + 1]));
    block.scale[g] = scale[g].scale;
  }
  reduce_sixteens(
      [&](int i) {
        const simd::Ints q = scale[i / kByteGroup].round(x + i);
        simd::store_bytes(block.values + i, q);
        return q;
      },
      [](simd::Ints a, simd::Ints b) { return simd::add(a, b); }, total);
  for (int i = 0; i < kInputBlock / 16; ++i) {
    block.sum16[i] = block.scale[i / 2] * static_cast<float>(total[i]);
    block.total16[i] = static_cast<int16_t>(total[i]);
  }
  for (int g = 0; g < kByteGroups; ++g) {
    const int32_t both = total[2 * g] + total[2 * g + 1];
    block.sum32[g] = block.scale[g] * static_cast<float>(both);
    block.total32[g] = static_cast<int16_t>(both);
  }
}

// The squares of a block's scales, which the squares of its rounding errors grow with.
inline float rounding_energy(const ByteBlock& block) {
  float energy = 0;
  for (float scale : block.scale) energy += scale * scale;
  return energy;
}

inline SecondBytes round_again(const float* x, const int8_t* first, float scale) {
  float error[kByteGroup], largest = 0;
  for (int i = 0; i < kByteGroup; ++i) {
    error[i] = x[i] - scale * static_cast<float>(first[i]);
    largest = std::max(largest, std::abs(error[i]));
  }
  const InputScale second = input_scale<127>(std::bit_cast<int32_t>(largest));
  SecondBytes bytes;
  bytes.scale = second.scale;
  simd::Ints total = simd::zero_ints();
  for (int i = 0; i < kByteGroup; i += simd::kLanes) {
    const simd::Ints q = second.round(error + i);
    simd::store_bytes(bytes.values + i, q);
    total = simd::add(total, q);
  }
  bytes.total = simd::sum(total);
  return bytes;
}

// Second bytes for groups whose energy is above the limit, and for no more than there is room for.
inline void add_seconds(const float* x, float limit, ByteBlock& block) {
  uint32_t chosen = 0;
  for (int g = 0; g < kByteGroups; ++g)
    chosen |= static_cast<uint32_t>(block.scale[g] * block.scale[g] > limit) << g;
  for (; std::popcount(chosen) > kMostSeconds;) {
    int least = -1;
    for (int g = 0; g < kByteGroups; ++g)
      if (chosen >> g & 1 && (least < 0 || block.scale[g] < block.scale[least])) least = g;
    chosen &= ~(1u << least);
  }
  block.seconds = chosen;
  SecondBytes* second = block.second;
  for (uint32_t left = chosen; left != 0; left &= left - 1) {
    const int g = std::countr_zero(left);
    *second++ = round_again(x + g * kByteGroup, block.values + g * kByteGroup, block.scale[g]);
  }
}

// A group has second bytes if its energy is so many times the mean of its column.
inline constexpr float kOutlying = 1.5f;

inline void quantize_byte_column(const float* x, int64_t width, uint8_t* bytes, int64_t stride,
                                 int64_t index) {
  const auto block_at = [&](int64_t k) -> ByteBlock& {
    return reinterpret_cast<ByteBlock*>(bytes + k / kInputBlock * stride)[index];
  };
  const int64_t whole = width / kInputBlock * kInputBlock;
  float padded[kInputBlock] = {};
  for (int64_t i = whole; i < width; ++i) padded[i - whole] = x[i];
  const auto values_at = [&](int64_t k) { return k < whole ? x + k : padded; };
  float energy = 0;
  for (int64_t k = 0; k < width; k += kInputBlock) {
    quantize_bytes(values_at(k), block_at(k));
    energy += rounding_energy(block_at(k));
  }
  const float limit =
      kOutlying * energy * static_cast<float>(kByteGroup) / static_cast<float>(width);
  for (int64_t k = 0; k < width; k += kInputBlock) add_seconds(values_at(k), limit, block_at(k));
}

}  // namespace ingot::INGOT_ISA
