// IQ2_XS: 256 weights in 74 bytes, 2.3125 bits each; 16 groups of 16.
//
//   0..1    d       f16
//   2..65   qs      16 bits for 8 weights: 9 of grid index, 7 of sign index
//   66..73  scales  nibbles, two groups a byte
//
//   w = (d/8 * (2*scale + 1)) * sign * grid
#pragma once

#include "formats/grid_lanes.h"
#include "formats/scale_bytes.h"

namespace ingot::INGOT_ISA {

struct IQ2_XS
    : BlockFormat<Layout{
          .type = TensorType{17}, .weights = 256, .bytes = 74, .group = 16, .max_word = 43 * 31}> {
  static Scales<16> scales(const uint8_t* block) {
    Scales<16> s;
    s.d = load_f16(block) * 0.125f;
    for (int g = 0; g < 16; ++g)
      s.scale[g] = static_cast<int16_t>(2 * (block[66 + g / 2] >> (g % 2 * 4) & 15) + 1);
    return s;
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    return lanes<slice>(block, signs(block));
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block, const BlockSigns& signs) {
    const auto q = [&](int i) -> uint32_t {
      return load_as<uint16_t>(block + 2 + slice * 8 + i * 2);
    };
    const simd::U8x32 grid = gather_runs(kGridIq2Xs, [&](int i) { return q(i) & 511; });
    return simd::negate_where(grid, signs.of_slice[slice]);
  }

  static BlockSigns signs(const uint8_t* block) {
    return add_eighth_signs(simd::shift_right<1>(simd::load_odd_bytes(block + 2)));
  }

  static ScaleBytes scale_bytes(const uint8_t* block) {
    return {load_f16(block) * 0.125f, 0, {odd_scales(block + 66), odd_scales(block + 70)}, {}};
  }
};

}  // namespace ingot::INGOT_ISA
