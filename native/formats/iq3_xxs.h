// IQ3_XXS: 256 weights in 98 bytes, 3.0625 bits each; 8 groups of 32.
//
//   0..1    d    f16
//   2..65   qs   grid index of each run of 4 weights
//   66..97  4 bytes a group: four 7-bit sign indices and, in the top four bits, the scale
//
//   w = (d/4 * (2*scale + 1)) * sign * grid
#pragma once

#include "formats/grid_lanes.h"
#include "formats/scale_bytes.h"

namespace ingot::INGOT_ISA {

struct IQ3_XXS
    : BlockFormat<Layout{
          .type = TensorType{18}, .weights = 256, .bytes = 98, .group = 32, .max_word = 62 * 31}> {
  static Scales<8> scales(const uint8_t* block) {
    Scales<8> s;
    s.d = load_f16(block) * 0.25f;
    for (int g = 0; g < 8; ++g) s.scale[g] = static_cast<int16_t>(2 * (block[69 + g * 4] >> 4) + 1);
    return s;
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    return lanes<slice>(block, signs(block));
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block, const BlockSigns& signs) {
    const uint8_t* index = block + 2 + slice * 8;
    const simd::U8x32 grid = gather_runs(kGridIq3Xxs, [&](int i) { return index[i]; });
    return simd::negate_where(grid, signs.of_slice[slice]);
  }

  static BlockSigns signs(const uint8_t* block) {
    return add_eighth_signs(simd::spread_sevens(simd::load32(block + 66)));
  }

  static ScaleBytes scale_bytes(const uint8_t* block) {
    const uint64_t nibbles = simd::top_nibbles(simd::load32(block + 66));
    return {load_f16(block) * 0.25f, 0, {nibbles << 1 | kOnes, 0}, {}};
  }
};

}  // namespace ingot::INGOT_ISA
