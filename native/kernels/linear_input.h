// The inputs of a matrix product as the kernels read them: 16-bit integers under one
// scale per 256, and their sums, which meet the minimums of the weights.
//
// In: a column of floats. Out: its InputBlocks, `stride` bytes from one to the next; the last is
// filled up with zeros.
// The amplitude is what keeps the sums of products exact in 32 bits (linear_block.h). Against
// the 8 bits other engines use, the error is a hundredth: 3e-5 of the block's largest value.
#pragma once

#include <algorithm>
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

// op over the lanes of each of kLanes vectors.
template <class Op>
inline simd::Ints across(simd::Ints (&vectors)[simd::kLanes], Op op) {
  simd::transpose(vectors);
  simd::Ints result = vectors[0];
  repeat<simd::kLanes - 1>([&](auto i) { result = op(result, vectors[i + 1]); });
  return result;
}

// op over each run of 16 of 256 integers; at(i) gives the vector that begins at i.
template <class At, class Op>
inline void reduce_sixteens(At at, Op op, int32_t (&out)[kInputBlock / 16]) {
  for (int first = 0; first < kInputBlock / 16; first += simd::kLanes) {
    simd::Ints runs[simd::kLanes];
    repeat<simd::kLanes>([&](auto i) {
      runs[i] = at((first + i) * 16);
      for (int j = simd::kLanes; j < 16; j += simd::kLanes)
        runs[i] = op(runs[i], at((first + i) * 16 + j));
    });
    simd::store_ints(out + first, across(runs, op));
  }
}

// The bits of the largest magnitude of each 16 values: integers order as floats do, NaN above all.
inline void largest_bits(const float* x, int32_t (&largest)[kInputBlock / 16]) {
  reduce_sixteens([&](int i) { return simd::magnitude_bits(simd::load_floats(x + i)); },
                  [](simd::Ints a, simd::Ints b) { return simd::larger(a, b); }, largest);
}

// How values become integers: x = scale * q.
struct InputScale {
  float scale;
  float inverse;  // 0: every q is 0

  simd::Ints round(const float* x) const {
    if (inverse == 0) return simd::zero_ints();
    return simd::round_to_ints(simd::multiply(simd::load_floats(x), simd::splat_float(inverse)));
  }
};

// The scale of values whose largest magnitude has these bits.
template <int kAmplitude>
inline InputScale input_scale(int32_t largest) {
  // Infinity or NaN: every product with these values is NaN.
  if (largest >= 0x7f800000) return {std::numeric_limits<float>::quiet_NaN(), 0};
  if (largest < 0x08000000) return {0, 0};  // below 2^-111 the inverse may not be a float
  const float most = std::bit_cast<float>(largest);
  return {most / kAmplitude, kAmplitude / most};
}

template <int kAmplitude>
INGOT_FLATTEN inline void quantize_block(const float* x, InputBlock& block) {
  int32_t largest[kInputBlock / 16], total[kInputBlock / 16];
  largest_bits(x, largest);
  const InputScale scale = input_scale<kAmplitude>(*std::max_element(largest, largest + 16));
  block.scale = scale.scale;
  for (float& zero : block.zeros) zero = 0;
  reduce_sixteens(
      [&](int i) {
        const simd::Ints q = scale.round(x + i);
        simd::store_words(block.values + i, q);
        return q;
      },
      [](simd::Ints a, simd::Ints b) { return simd::add(a, b); }, total);
  for (int i = 0; i < kInputBlock / 16; ++i)
    block.sum16[i] = scale.scale * static_cast<float>(total[i]);
  for (int i = 0; i < kInputBlock / 32; ++i)
    block.sum32[i] = scale.scale * static_cast<float>(total[2 * i] + total[2 * i + 1]);
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
