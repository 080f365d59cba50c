// Q4_1: 32 weights in 20 bytes, 5 bits each.
//
//   0..1   d   f16
//   2..3   m   f16
//   4..19  qs  nibbles: byte i holds weight i (low) and weight i+16 (high)
//
//   w = d * nibble + m
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

struct Q4_1 : BlockFormat<TensorType::Q4_1, 32, true> {
  static Scales<1> scales(const uint8_t* block) {
    return {load_f16(block), load_f16(block + 2), {1}, {1}};
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    return simd::nibbles(simd::load16(block + 4));
  }
};

}  // namespace ingot::INGOT_ISA
