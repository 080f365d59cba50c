// Q8_0: 32 weights in 34 bytes, 8.5 bits each.
//
//   0..1   d   f16
//   2..33  qs  int8
//
//   w = d * q
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

struct Q8_0 : BlockFormat<TensorType::Q8_0, 32, false> {
  static Scales<1> scales(const uint8_t* block) { return {load_f16(block), 0, {1}, {}}; }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    return simd::load32(block + 2);
  }
};

}  // namespace ingot::INGOT_ISA
