// Q5_0: 32 weights in 22 bytes, 5.5 bits each.
//
//   0..1   d   f16
//   2..5   qh  the fifth bit of weight i is bit i
//   6..21  qs  nibbles: byte i holds weight i (low) and weight i+16 (high)
//
//   w = d * (five bits - 16)
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

struct Q5_0 : BlockFormat<TensorType::Q5_0, 32, false> {
  static Scales<1> scales(const uint8_t* block) { return {load_f16(block), 0, {1}, {}}; }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    const simd::U8x32 fifth = simd::spread_bits(load_as<uint32_t>(block + 2)) & simd::splat(16);
    return (simd::nibbles(simd::load16(block + 6)) | fifth) - simd::splat(16);
  }
};

}  // namespace ingot::INGOT_ISA
