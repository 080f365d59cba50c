// The inputs of a matrix product as the kernels read them: 16-bit integers under one
// scale per 256, and their sums, which meet the minimums of the weights.
//
// In: a column of floats. Out: its InputBlocks, `stride` bytes from one to the next; the last is
// filled up with zeros.
// The amplitude is what keeps the sums of products exact in 32 bits (linear_block.h). Against
// the 8 bits other engines use, the error is a hundredth: 3e-5 of the block's largest value.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "simd/vector.h"

namespace ingot::INGOT_ISA {

inline constexpr int kInputBlock = 256;

struct alignas(64) InputBlock {
  int16_t values[kInputBlock];    // x = scale * value
  float sum16[kInputBlock / 16];  // scale * the sum of 16 values
  float sum32[kInputBlock / 32];  // scale * the sum of 32 values
  float scale;
  float zeros[7];  // so that sum32 can be read as 16 lanes
};
static_assert(sizeof(InputBlock) == 640);

inline int64_t input_blocks(int64_t width) { return (width + kInputBlock - 1) / kInputBlock; }

inline int64_t quantized_bytes(int64_t width) {
  return input_blocks(width) * static_cast<int64_t>(sizeof(InputBlock));
}

inline int64_t input_block_offset(int64_t, int64_t index) {
  return index * static_cast<int64_t>(sizeof(InputBlock));
}

// The bits of the largest magnitude: integers order as floats do, NaN above all.
inline uint32_t largest_input_bits(const float* x, int count) {
  uint32_t largest = 0;
  for (int i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

template <int kAmplitude>
inline void quantize_block(const float* x, InputBlock& block) {
  const uint32_t largest = largest_input_bits(x, kInputBlock);
  float inverse = 0;
  if (largest >= 0x7f800000u) {  // infinity or NaN: every product with this block is NaN
    block.scale = std::numeric_limits<float>::quiet_NaN();
  } else if (largest < 0x08000000u) {  // below 2^-111 the inverse may not be a float
    block.scale = 0;
  } else {
    block.scale = std::bit_cast<float>(largest) / kAmplitude;
    inverse = kAmplitude / std::bit_cast<float>(largest);
  }
  for (float& zero : block.zeros) zero = 0;
  for (int half = 0; half < kInputBlock / 32; ++half) {
    int32_t total = 0;
    for (int group = 2 * half; group < 2 * half + 2; ++group) {
      int32_t group_total = 0;
      for (int i = group * 16; i < group * 16 + 16; i += simd::kLanes) {
        simd::Ints q = simd::zero_ints();
        if (inverse != 0)
          q = simd::round_to_ints(
              simd::multiply(simd::load_floats(x + i), simd::splat_float(inverse)));
        simd::store_words(block.values + i, q);
        group_total += simd::sum(q);
      }
      block.sum16[group] = block.scale * static_cast<float>(group_total);
      total += group_total;
    }
    block.sum32[half] = block.scale * static_cast<float>(total);
  }
}

template <int kAmplitude>
void quantize_column(const float* x, int64_t width, uint8_t* quantized, int64_t stride,
                     int64_t index) {
  quantized += index * static_cast<int64_t>(sizeof(InputBlock));
  for (; width >= kInputBlock; width -= kInputBlock, x += kInputBlock, quantized += stride)
    quantize_block<kAmplitude>(x, *reinterpret_cast<InputBlock*>(quantized));
  if (width > 0) {
    float padded[kInputBlock] = {};
    for (int64_t i = 0; i < width; ++i) padded[i] = x[i];
    quantize_block<kAmplitude>(padded, *reinterpret_cast<InputBlock*>(quantized));
  }
}

}  // namespace ingot::INGOT_ISA
