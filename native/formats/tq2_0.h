// TQ2_0: 256 weights of -1, 0 or 1 in 66 bytes, 2.0625 bits each.
//
//   0..63   qs  two bits each: byte i of a run of 32 holds weights i, i+32, i+64, i+96
//   64..65  d   f16
//
//   w = d * (two bits - 1)
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

struct TQ2_0
    : BlockFormat<Layout{
          .type = TensorType{35}, .weights = 256, .bytes = 66, .group = 256, .max_word = 2}> {
  static Scales<1> scales(const uint8_t* block) { return {load_f16(block + 64), 0, {1}, {}}; }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    const simd::U8x32 packed = simd::load32(block + slice / 4 * 32);
    return (simd::shift_right<slice % 4 * 2>(packed) & simd::splat(3)) - simd::splat(1);
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
