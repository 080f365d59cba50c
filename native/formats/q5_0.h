// Q5_0: 32 weights in 22 bytes, 5.5 bits each.
//
//   0..1   d   f16
//   2..5   qh  the fifth bit of weight i is bit i
//   6..21  qs  nibbles: byte i holds weight i (low) and weight i+16 (high)
//
//   w = d * (five bits - 16)
#pragma once

#include "formats/small_blocks.h"

namespace ingot::INGOT_ISA {

struct Q5_0 : BlockFormat<Layout{.type = TensorType{6},
                                 .weights = 32,
                                 .bytes = 22,
                                 .group = 32,
                                 .least = -16,
                                 .most = 15,
                                 .max_word = 16}> {
  static Scales<1> scales(const uint8_t* block) { return {load_f16(block), 0, {1}, {}}; }

  template <int slice, class Block>
  static auto lanes(Block block) {
    const auto fifth = simd::spread_bits(block + 2) & simd::splat(16);
    return (simd::nibbles(simd::load16(block + 6)) | fifth) - simd::splat(16);
  }

  static void paired_lanes(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    paired_nibbles<6>(a, b, out);
    add_paired_fifth_bits<2>(a, b, out);
    for (simd::U8x32& lanes : out) lanes = lanes - simd::splat(16);
  }

  static BlockFactors block_factors(const uint8_t* blocks) {
    return halves_of_blocks<Q5_0>(blocks);
  }

  template <class Turned>
  static auto turned_d(Turned block) {
    return block.half();
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
