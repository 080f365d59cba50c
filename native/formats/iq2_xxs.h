// IQ2_XXS: 256 weights in 66 bytes, 2.0625 bits each; 8 groups of 32.
//
//   0..1   d   f16
//   2..65  8 bytes a group: four grid indices, then four 7-bit sign indices and, in the
//          top four bits, the scale
//
//   w = (d/8 * (2*scale + 1)) * sign * grid
#pragma once

#include "formats/grid_lanes.h"
#include "formats/scale_bytes.h"

namespace ingot::INGOT_ISA {

struct IQ2_XXS
    : BlockFormat<Layout{
          .type = TensorType{16}, .weights = 256, .bytes = 66, .group = 32, .max_word = 43 * 31}> {
  static Scales<8> scales(const uint8_t* block) {
    Scales<8> s;
    s.d = load_f16(block) * 0.125f;
    for (int g = 0; g < 8; ++g) s.scale[g] = static_cast<int16_t>(2 * (block[9 + g * 8] >> 4) + 1);
    return s;
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    return lanes<slice>(block, signs(block));
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block, const BlockSigns& signs) {
    const uint8_t* group = block + 2 + slice * 8;
    const simd::U8x32 grid = gather_runs(kGridIq2Xxs, [&](int i) { return group[i]; });
    return simd::negate_where(grid, signs.of_slice[slice]);
  }

  static BlockSigns signs(const uint8_t* block) {
    return add_eighth_signs(simd::spread_sevens(simd::load_odd_words(block + 2)));
  }

  static ScaleBytes scale_bytes(const uint8_t* block) {
    const uint64_t nibbles = simd::top_nibbles(simd::load_odd_words(block + 2));
    return {load_f16(block) * 0.125f, 0, {nibbles << 1 | kOnes, 0}, {}};
  }
};

}  // namespace ingot::INGOT_ISA
