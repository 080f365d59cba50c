// Q8_0: 32 weights in 34 bytes, 8.5 bits each.
//
//   0..1   d   f16
//   2..33  qs  int8
//
//   w = d * q
#pragma once

#include "formats/small_blocks.h"

namespace ingot::INGOT_ISA {

struct Q8_0
    : BlockFormat<Layout{
          .type = TensorType::Q8_0, .weights = 32, .bytes = 34, .group = 32, .max_word = 128}> {
  static Scales<1> scales(const uint8_t* block) { return {load_f16(block), 0, {1}, {}}; }

  template <int slice, class Block>
  static auto lanes(Block block) {
    return simd::load32(block + 2);
  }

  static void paired_lanes(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    out[0] = simd::join(simd::load16(a + 2), simd::load16(b + 2));
    out[1] = simd::join(simd::load16(a + 18), simd::load16(b + 18));
  }

  static BlockFactors block_factors(const uint8_t* blocks) {
    return halves_of_blocks<Q8_0>(blocks);
  }

  template <class Turned>
  static auto turned_d(Turned block) {
    return block.half();
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
