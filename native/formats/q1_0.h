// Q1_0: 128 weights of -1 or 1 in 18 bytes, 1.125 bits each.
//
//   0..1   d   f16
//   2..17  qs  bit i: whether weight i is positive
//
//   w = d * (bit ? 1 : -1)
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

struct Q1_0 : BlockFormat<Layout{.type = TensorType{41},
                                 .weights = 128,
                                 .bytes = 18,
                                 .group = 128,
                                 .least = -1,
                                 .most = 1,
                                 .max_word = 1}> {
  static Scales<1> scales(const uint8_t* block) { return {load_f16(block), 0, {1}, {}}; }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    return simd::negate_where(simd::splat(0xff), load_as<uint32_t>(block + 2 + slice * 4));
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
