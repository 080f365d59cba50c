// The inputs of a matrix product as bytes: 8-bit integers under one scale per 32, and their sums.
//
// llama.cpp has one scale per 256 for the formats in blocks of 256 weights, which read these. The
// error is a fifth of that, as KL divergence.
#pragma once

#include "isa/table.h"
#include "kernels/linear_input.h"

namespace ingot::INGOT_ISA {

inline constexpr int kByteGroup = 32;  // inputs that share a scale
// 256 inputs of a column, as large as an InputBlock, so that both have the same stride.
struct alignas(64) ByteBlock {
  int8_t values[kInputBlock];             // x = scale * value
  float scale[kInputBlock / kByteGroup];  // of 32 values
  float sum32[kInputBlock / 32];          // scale * the sum of 32 values
  float sum16[kInputBlock / 16];
  int32_t total32[kInputBlock / 32];  // the sum of 32 values
  int32_t total16[kInputBlock / 16];
  uint8_t unused[sizeof(InputBlock) - 480];
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
  InputScale scale[kInputBlock / kByteGroup];
  for (int g = 0; g < kInputBlock / kByteGroup; ++g) {
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
    block.total16[i] = total[i];
  }
  for (int g = 0; g < kInputBlock / 32; ++g) {
    const int32_t both = total[2 * g] + total[2 * g + 1];
    block.sum32[g] = block.scale[g] * static_cast<float>(both);
    block.total32[g] = both;
  }
}

// A column whose width is a multiple of 256, as are the rows of the weights it meets.
inline void quantize_byte_column(const float* x, int64_t width, uint8_t* bytes, int64_t stride,
                                 int64_t index) {
  for (; width >= kInputBlock; width -= kInputBlock, x += kInputBlock, bytes += stride)
    quantize_bytes(x, reinterpret_cast<ByteBlock*>(bytes)[index]);
}

}  // namespace ingot::INGOT_ISA
