// IQ1_S: 256 weights in 50 bytes, 1.5625 bits each; 8 groups of 32.
//
//   0..1    d   f16
//   2..33   qs  low 8 bits of the grid index of each run of 8 weights
//   34..49  qh  16 bits a group: top three bits of the four grid indices, then three
//               bits of scale, then the sign of the shift
//
//   w = (d * (2*scale + 1)) * (grid + shift)    grid in -1, 0, 1; shift +-1/8
//
// In eighths both are whole: q = 8*grid +- 1 (the stored grid holds 8*grid), d/8.
#pragma once

#include "formats/grid_lanes.h"
#include "formats/scale_bytes.h"

namespace ingot::INGOT_ISA {

struct IQ1_S
    : BlockFormat<Layout{
          .type = TensorType{19}, .weights = 256, .bytes = 50, .group = 32, .max_word = 9 * 15}> {
  static Scales<8> scales(const uint8_t* block) {
    Scales<8> s;
    s.d = load_f16(block) * 0.125f;
    for (int g = 0; g < 8; ++g)
      s.scale[g] = static_cast<int16_t>(2 * (block[35 + g * 2] >> 4 & 7) + 1);
    return s;
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    const uint32_t low = load_as<uint32_t>(block + 2 + slice * 4);
    const uint32_t high = load_as<uint16_t>(block + 34 + slice * 2);
    const simd::U8x32 grid = gather_runs(kGridIq1S, four_indices<3>(low, high & 0xfff));
    return grid + simd::splat(high >> 15 ? 0xff : 0x01);
  }

  static ScaleBytes scale_bytes(const uint8_t* block) {
    uint64_t fields = 0;
    for (int g = 0; g < 8; ++g)
      fields |= static_cast<uint64_t>(block[35 + g * 2] >> 4 & 7) << (g * 8);
    return {load_f16(block) * 0.125f, 0, {fields << 1 | kOnes, 0}, {}};
  }
};

}  // namespace ingot::INGOT_ISA
