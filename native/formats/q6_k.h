// Q6_K: 256 weights in 210 bytes, 6.5625 bits each; 16 groups of 16.
//
//   0..127    ql      nibbles: 64 bytes hold 128 weights, the first 64 low, the others high
//   128..191  qh      two bits each: byte i of a run of 32 holds weights i, i+32, i+64, i+96
//   192..207  scales  int8
//   208..209  d       f16
//
//   w = (d * scale) * (six bits - 32)
#pragma once

#include "formats/wide_words.h"

namespace ingot::INGOT_ISA {

struct Q6_K : BlockFormat<Layout{.type = TensorType{14},
                                 .weights = 256,
                                 .bytes = 210,
                                 .group = 16,
                                 .least = -32,
                                 .most = 31,
                                 .max_word = 32 * 128}> {
  static Scales<16> scales(const uint8_t* block) {
    Scales<16> s;
    s.d = load_f16(block + 208);
    for (int g = 0; g < 16; ++g) s.scale[g] = static_cast<int8_t>(block[192 + g]);
    return s;
  }

  template <int slice, class Block>
  static auto lanes(Block block) {
    constexpr int half = slice / 4, quarter = slice % 4;
    const auto ql = simd::load32(block + half * 64 + quarter % 2 * 32);
    const auto qh = simd::load32(block + 128 + half * 32);
    const auto low = simd::shift_right<quarter / 2 * 4>(ql) & simd::splat(15);
    const auto high = simd::shift_right<quarter * 2>(qh) & simd::splat(3);
    return (low | simd::shift_left<4>(high)) - simd::splat(32);
  }

  template <int slice>
  static simd::Words words(const uint8_t* block) {
    constexpr int half = slice / 4, quarter = slice % 4;
    const simd::Words low =
        nibble_words < quarter / 2 != 0 > (wide(block + half * 64 + quarter % 2 * 32));
    const simd::Words high = align_bits<quarter * 2, 4>(wide(block + 128 + half * 32));
    return simd::subtract(simd::merge(low, high, 0x30), 32);
  }

  static ScaleBytes scale_bytes(const uint8_t* block) {
    return {load_f16(block + 208),
            0,
            {load_as<uint64_t>(block + 192), load_as<uint64_t>(block + 200)},
            {}};
  }

  template <int g, class Turned>
  static auto turned_scale(Turned block) {
    return (block + (192 + g / 4 * 4)).template byte<g % 4>();
  }
  template <class Turned>
  static auto turned_d(Turned block) {
    return (block + 208).half();
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
