// Q8_K: 256 weights in 292 bytes; a format of intermediate results.
//
//   0..3      d      f32
//   4..259    qs     int8
//   260..291  bsums  int16 sums of 16 q each; not needed to decode
//
//   w = d * q
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

struct Q8_K
    : BlockFormat<Layout{
          .type = TensorType{15}, .weights = 256, .bytes = 292, .group = 256, .max_word = 128}> {
  static Scales<1> scales(const uint8_t* block) { return {load_as<float>(block), 0, {1}, {}}; }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    return simd::load32(block + 4 + slice * 32);
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
