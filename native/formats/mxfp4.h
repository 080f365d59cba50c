// MXFP4: 32 weights in 17 bytes, 4.25 bits each: four-bit floats (e2m1) under one
// power of two.
//
//   0      e   exponent of the scale: 2^(e-127), halved because the levels are doubled
//   1..16  qs  nibbles: byte i holds weight i (low) and weight i+16 (high)
//
//   w = 2^(e-128) * kFp4Levels[nibble]
#pragma once

#include "formats/small_blocks.h"

namespace ingot::INGOT_ISA {

// The values of e2m1, doubled so that they are whole.
inline constexpr int8_t kFp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct MXFP4 : BlockFormat<Layout{.type = TensorType{39},
                                  .weights = 32,
                                  .bytes = 17,
                                  .group = 32,
                                  .least = -12,
                                  .most = 12,
                                  .max_word = 12}> {
  static Scales<1> scales(const uint8_t* block) {
    // Below 2^-126 the float is subnormal: its one bit sits in the mantissa.
    const uint32_t e = block[0];
    const uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    return {std::bit_cast<float>(bits), 0, {1}, {}};
  }

  template <int slice, class Block>
  static auto lanes(Block block) {
    return simd::lookup16(simd::load16(kFp4Levels), simd::nibbles(simd::load16(block + 1)));
  }

  static void paired_lanes(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    paired_nibbles<1>(a, b, out);
    for (simd::U8x32& lanes : out) lanes = simd::lookup16(simd::load16(kFp4Levels), lanes);
  }

  template <class Turned>
  static auto turned_d(Turned block) {
    const auto e = block.template bits<8>();
    const auto is_small = e < 2;  // all bits or none; clang has no ?: of such vectors
    decltype(e) small = 0x00200000 << (e & 1), other = (e - 1) << 23;
    return Turned::floats((small & is_small) | (other & ~is_small));
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
