// Q4_K: 256 weights in 144 bytes, 4.5 bits each; 8 groups of 32.
//
//   0..15    d, dmin, scales and minimums (six_bit_pairs.h)
//   16..143  qs    nibbles: 32 bytes hold groups 2j (low) and 2j+1 (high)
//
//   w = (d * scale) * nibble - (dmin * min)
#pragma once

#include "formats/six_bit_pairs.h"
#include "formats/wide_words.h"

namespace ingot::INGOT_ISA {

struct Q4_K : BlockFormat<Layout{.type = TensorType{12},
                                 .weights = 256,
                                 .bytes = 144,
                                 .group = 32,
                                 .has_min = true,
                                 .least = 0,
                                 .most = 15,
                                 .max_word = 15 * 63}>,
              SixBitPairs {
  template <int slice, class Block>
  static auto lanes(Block block) {
    const auto packed = simd::load32(block + 16 + slice / 2 * 32);
    return simd::shift_right<slice % 2 * 4>(packed) & simd::splat(15);
  }

  template <int slice>
  static simd::Words words(const uint8_t* block) {
    return nibble_words < slice % 2 != 0 > (wide(block + 16 + slice / 2 * 32));
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
