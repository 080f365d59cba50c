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
    const uint8_t* index = block + 2 + slice * 8;
    const simd::U8x32 grid = gather_runs(kGridIq3Xxs, [&](int i) { return index[i]; });
    const uint32_t signs = signs_of_four(load_as<uint32_t>(block + 66 + slice * 4));
    return simd::negate_where(grid, signs);
  }

  static ScaleBytes scale_bytes(const uint8_t* block) {
    return {load_f16(block) * 0.25f, 0, {odd_top_nibbles<4>(block + 69), 0}, {}};
  }
};

}  // namespace ingot::INGOT_ISA
