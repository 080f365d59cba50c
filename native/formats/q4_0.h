// Q4_0: 32 weights in 18 bytes, 4.5 bits each.
//
//   0..1   d   f16
//   2..17  qs  nibbles: byte i holds weight i (low) and weight i+16 (high)
//
//   w = d * (nibble - 8)
#pragma once

#include "formats/small_blocks.h"

namespace ingot::INGOT_ISA {

struct Q4_0 : BlockFormat<Layout{.type = TensorType::Q4_0,
                                 .weights = 32,
                                 .bytes = 18,
                                 .group = 32,
                                 .least = -8,
                                 .most = 7,
                                 .max_word = 8}> {
  static Scales<1> scales(const uint8_t* block) { return {load_f16(block), 0, {1}, {}}; }

  template <int slice, class Block>
  static auto lanes(Block block) {
    return simd::nibbles(simd::load16(block + 2)) - simd::splat(8);
  }

  static void paired_lanes(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    paired_nibbles<2>(a, b, out);
    for (simd::U8x32& lanes : out) lanes = lanes - simd::splat(8);
  }

  static BlockFactors block_factors(const uint8_t* blocks) {
    return halves_of_blocks<Q4_0>(blocks);
  }

  template <class Turned>
  static auto turned_d(Turned block) {
    return block.half();
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
