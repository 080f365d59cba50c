// Q5_1: 32 weights in 24 bytes, 6 bits each.
//
//   0..1   d   f16
//   2..3   m   f16
//   4..7   qh  the fifth bit of weight i is bit i
//   8..23  qs  nibbles: byte i holds weight i (low) and weight i+16 (high)
//
//   w = d * (five bits) + m
#pragma once

#include "formats/small_blocks.h"

namespace ingot::INGOT_ISA {

struct Q5_1 : BlockFormat<Layout{.type = TensorType{7},
                                 .weights = 32,
                                 .bytes = 24,
                                 .group = 32,
                                 .has_min = true,
                                 .max_word = 31}> {
  static Scales<1> scales(const uint8_t* block) {
    return {load_f16(block), load_f16(block + 2), {1}, {1}};
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    const simd::U8x32 fifth = simd::spread_bits(load_as<uint32_t>(block + 4)) & simd::splat(16);
    return simd::nibbles(simd::load16(block + 8)) | fifth;
  }

  static void paired_lanes(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    paired_nibbles<8>(a, b, out);
    add_paired_fifth_bits<4>(a, b, out);
  }

  static BlockFactors block_factors(const uint8_t* blocks) {
    return halves_of_blocks<Q5_1>(blocks);
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
