// Q4_0: 32 weights in 18 bytes, 4.5 bits each.
//
//   0..1   d   f16
//   2..17  qs  nibbles: byte i holds weight i (low) and weight i+16 (high)
//
//   w = d * (nibble - 8)
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

struct Q4_0 : BlockFormat<TensorType::Q4_0, 32, false> {
  static Scales<1> scales(const uint8_t* block) { return {load_f16(block), 0, {1}, {}}; }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    return simd::nibbles(simd::load16(block + 2)) - simd::splat(8);
  }
};

}  // namespace ingot::INGOT_ISA
