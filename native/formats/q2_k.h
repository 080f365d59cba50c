// Q2_K: 256 weights in 84 bytes, 2.625 bits each; 16 groups of 16.
//
//   0..15   scale (low nibble) and minimum (high nibble) of each group
//   16..79  qs    two bits each: byte i of a run of 32 holds weights i, i+32, i+64, i+96
//   80..81  d     f16, multiplies the scales
//   82..83  dmin  f16, multiplies the minimums
//
//   w = (d * scale) * q - (dmin * min)
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

struct Q2_K : BlockFormat<TensorType::Q2_K, 16, true> {
  static Scales<16> scales(const uint8_t* block) {
    Scales<16> s;
    s.d = load_f16(block + 80);
    s.m = -load_f16(block + 82);
    for (int g = 0; g < 16; ++g) {
      s.scale[g] = block[g] & 15;
      s.min[g] = block[g] >> 4;
    }
    return s;
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    return simd::shift_right<slice % 4 * 2>(simd::load32(block + 16 + slice / 4 * 32)) &
           simd::splat(3);
  }
};

}  // namespace ingot::INGOT_ISA
