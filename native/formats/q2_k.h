// Q2_K: 256 weights in 84 bytes, 2.625 bits each; 16 groups of 16.
//
//   0..15   scale (low nibble) and minimum (high nibble) of each group
//   16..79  qs    two bits each: byte i of a run of 32 holds weights i, i+32, i+64, i+96
//   80..81  d     f16, multiplies the scales
//   82..83  dmin  f16, multiplies the minimums
//
//   w = (d * scale) * q - (dmin * min)
#pragma once

#include "formats/scale_bytes.h"
#include "formats/wide_words.h"

namespace ingot::INGOT_ISA {

struct Q2_K : BlockFormat<Layout{.type = TensorType{10},
                                 .weights = 256,
                                 .bytes = 84,
                                 .group = 16,
                                 .has_min = true,
                                 .least = 0,
                                 .most = 3,
                                 .max_word = 3 * 15}> {
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

  template <int slice, class Block>
  static auto lanes(Block block) {
    return simd::shift_right<slice % 4 * 2>(simd::load32(block + 16 + slice / 4 * 32)) &
           simd::splat(3);
  }

  template <int slice>
  static simd::Words words(const uint8_t* block) {
    return simd::keep(simd::shift_right<slice % 4 * 2>(wide(block + 16 + slice / 4 * 32)), 3);
  }

  static ScaleBytes scale_bytes(const uint8_t* block) {
    const uint64_t lo = load_as<uint64_t>(block), hi = load_as<uint64_t>(block + 8);
    return {load_f16(block + 80),
            -load_f16(block + 82),
            {lo & kNibbles, hi & kNibbles},
            {lo >> 4 & kNibbles, hi >> 4 & kNibbles}};
  }

  template <int g, class Turned>
  static auto turned_scale(Turned block) {
    return (block + g / 4 * 4).template field<g % 4 * 8, 4>();
  }
  template <int g, class Turned>
  static auto turned_min(Turned block) {
    return (block + g / 4 * 4).template field<g % 4 * 8 + 4, 4>();
  }
  template <class Turned>
  static auto turned_d(Turned block) {
    return (block + 80).half();
  }
  template <class Turned>
  static auto turned_m(Turned block) {
    return -(block + 82).half();
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
