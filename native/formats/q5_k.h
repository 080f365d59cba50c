// Q5_K: 256 weights in 176 bytes, 5.5 bits each; 8 groups of 32.
//
//   0..15    d, dmin, scales and minimums (six_bit_pairs.h)
//   16..47   qh    bit g of byte i: the fifth bit of weight i of group g
//   48..175  qs    nibbles: 32 bytes hold groups 2j (low) and 2j+1 (high)
//
//   w = (d * scale) * (five bits) - (dmin * min)
#pragma once

#include "formats/six_bit_pairs.h"
#include "formats/wide_words.h"

namespace ingot::INGOT_ISA {

struct Q5_K : BlockFormat<Layout{.type = TensorType{13},
                                 .weights = 256,
                                 .bytes = 176,
                                 .group = 32,
                                 .has_min = true,
                                 .least = 0,
                                 .most = 31,
                                 .max_word = 31 * 63}>,
              SixBitPairs {
  template <int slice, class Block>
  static auto lanes(Block block) {
    const auto packed = simd::load32(block + 48 + slice / 2 * 32);
    return (simd::shift_right<slice % 2 * 4>(packed) & simd::splat(15)) |
           simd::move_bit<slice, 4>(simd::load32(block + 16));
  }

  template <int slice>
  static simd::Words words(const uint8_t* block) {
    return simd::merge(nibble_words < slice % 2 != 0 > (wide(block + 48 + slice / 2 * 32)),
                       align_bits<slice, 4>(wide(block + 16)), 16);
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
