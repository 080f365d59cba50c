// Q4_1: 32 weights in 20 bytes, 5 bits each.
//
//   0..1   d   f16
//   2..3   m   f16
//   4..19  qs  nibbles: byte i holds weight i (low) and weight i+16 (high)
//
//   w = d * nibble + m
#pragma once

#include "formats/small_blocks.h"

namespace ingot::INGOT_ISA {

struct Q4_1 : BlockFormat<Layout{.type = TensorType{3},
                                 .weights = 32,
                                 .bytes = 20,
                                 .group = 32,
                                 .has_min = true,
                                 .max_word = 15}> {
  static Scales<1> scales(const uint8_t* block) {
    return {load_f16(block), load_f16(block + 2), {1}, {1}};
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    return simd::nibbles(simd::load16(block + 4));
  }

  static void paired_lanes(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    paired_nibbles<4>(a, b, out);
  }

  static BlockFactors block_factors(const uint8_t* blocks) {
    return halves_of_blocks<Q4_1>(blocks);
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
