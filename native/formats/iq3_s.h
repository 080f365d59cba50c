// IQ3_S: 256 weights in 110 bytes, 3.4375 bits each; 8 groups of 32.
//
//   0..1      d       f16
//   2..65     qs      low 8 bits of the grid index of each run of 4 weights
//   66..73    qh      the ninth bits, eight runs a byte
//   74..105   signs   one bit a weight
//   106..109  scales  nibbles, two groups a byte
//
//   w = (d * (2*scale + 1)) * sign * grid
#pragma once

#include "formats/grid_lanes.h"
#include "formats/scale_bytes.h"

namespace ingot::INGOT_ISA {

struct IQ3_S
    : BlockFormat<Layout{
          .type = TensorType{21}, .weights = 256, .bytes = 110, .group = 32, .max_word = 15 * 31}> {
  static Scales<8> scales(const uint8_t* block) {
    Scales<8> s;
    s.d = load_f16(block);
    for (int g = 0; g < 8; ++g)
      s.scale[g] = static_cast<int16_t>(2 * (block[106 + g / 2] >> (g % 2 * 4) & 15) + 1);
    return s;
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    const uint8_t* low = block + 2 + slice * 8;
    const uint32_t ninth = block[66 + slice];
    const simd::U8x32 grid =
        gather_runs(kGridIq3S, four_indices<1>(load_as<uint32_t>(low), ninth & 15),
                    four_indices<1>(load_as<uint32_t>(low + 4), ninth >> 4));
    return simd::negate_where(grid, load_as<uint32_t>(block + 74 + slice * 4));
  }

  static ScaleBytes scale_bytes(const uint8_t* block) {
    return {load_f16(block), 0, {odd_scales(block + 106), 0}, {}};
  }
};

}  // namespace ingot::INGOT_ISA
