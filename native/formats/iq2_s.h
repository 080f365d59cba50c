// IQ2_S: 256 weights in 82 bytes, 2.5625 bits each; 16 groups of 16.
//
//   0..1    d       f16
//   2..33   qs      low 8 bits of the grid index of each run of 8 weights
//   34..65  signs   one bit a weight
//   66..73  qh      top two bits of the grid indices, four runs a byte
//   74..81  scales  nibbles, two groups a byte
//
//   w = (d/8 * (2*scale + 1)) * sign * grid
#pragma once

#include "formats/grid_lanes.h"
#include "formats/scale_bytes.h"

namespace ingot::INGOT_ISA {

struct IQ2_S
    : BlockFormat<Layout{
          .type = TensorType{22}, .weights = 256, .bytes = 82, .group = 16, .max_word = 43 * 31}> {
  static Scales<16> scales(const uint8_t* block) {
    Scales<16> s;
    s.d = load_f16(block) * 0.125f;
    for (int g = 0; g < 16; ++g)
      s.scale[g] = static_cast<int16_t>(2 * (block[74 + g / 2] >> (g % 2 * 4) & 15) + 1);
    return s;
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    const uint32_t low = load_as<uint32_t>(block + 2 + slice * 4);
    const simd::U8x32 grid = gather_runs(kGridIq2S, four_indices<2>(low, block[66 + slice]));
    return simd::negate_where(grid, load_as<uint32_t>(block + 34 + slice * 4));
  }

  static ScaleBytes scale_bytes(const uint8_t* block) {
    return {load_f16(block) * 0.125f, 0, {odd_scales(block + 74), odd_scales(block + 78)}, {}};
  }
};

}  // namespace ingot::INGOT_ISA
