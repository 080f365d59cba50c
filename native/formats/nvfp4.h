// NVFP4: 64 weights in 36 bytes, 4.5 bits each; 4 groups of 16 four-bit floats (e2m1),
// each group under an unsigned eight-bit float (e4m3).
//
//   0..3   scales  e4m3 without its sign bit; 0x7f means zero
//   4..35  qs      8 bytes a group: byte i holds weight i (low) and weight i+8 (high)
//
//   w = scale / 2 * kFp4Levels[nibble]
//
// In units of 2^-10 every halved scale is a whole number, of up to 19 bits.
#pragma once

#include "formats/mxfp4.h"

namespace ingot::INGOT_ISA {

struct NVFP4 : BlockFormat<TensorType::NVFP4, 16, false> {
  static Scales<4, int32_t> scales(const uint8_t* block) {
    Scales<4, int32_t> s;
    s.d = 0x1p-10f;
    for (int g = 0; g < 4; ++g) {
      const int exponent = block[g] >> 3 & 15, mantissa = block[g] & 7;
      s.scale[g] = exponent == 0 ? mantissa : (8 + mantissa) << (exponent - 1);
      if (block[g] == 0x7f) s.scale[g] = 0;
    }
    return s;
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    const simd::U8x32 low_then_high = simd::nibbles(simd::load16(block + 4 + slice * 16));
    return simd::lookup16(simd::load16(kFp4Levels), simd::swap_middle_quarters(low_then_high));
  }
};

}  // namespace ingot::INGOT_ISA
