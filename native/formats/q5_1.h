// Q5_1: 32 weights in 24 bytes, 6 bits each.
//
//   0..1   d   f16
//   2..3   m   f16
//   4..7   qh  the fifth bit of weight i is bit i
//   8..23  qs  nibbles: byte i holds weight i (low) and weight i+16 (high)
//
//   w = d * (five bits) + m
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

struct Q5_1 : BlockFormat<TensorType::Q5_1, 32, true> {
  static Scales<1> scales(const uint8_t* block) {
    return {load_f16(block), load_f16(block + 2), {1}, {1}};
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    const simd::U8x32 fifth = simd::spread_bits(load_as<uint32_t>(block + 4)) & simd::splat(16);
    return simd::nibbles(simd::load16(block + 8)) | fifth;
  }
};

}  // namespace ingot::INGOT_ISA
