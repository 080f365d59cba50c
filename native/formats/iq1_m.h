// IQ1_M: 256 weights in 56 bytes, 1.75 bits each; 16 groups of 16.
//
//   0..31   qs      low 8 bits of the grid index of each run of 8 weights
//   32..47  qh      a nibble a run: top three bits of the index, then the sign of the shift
//   48..55  scales  16 bits for four groups: three bits each, then a nibble of d
//
//   w = (d * (2*scale + 1)) * (grid + shift), in eighths as IQ1_S
#pragma once

#include "formats/grid_lanes.h"
#include "formats/scale_bytes.h"

namespace ingot::INGOT_ISA {

struct IQ1_M
    : BlockFormat<Layout{
          .type = TensorType{29}, .weights = 256, .bytes = 56, .group = 16, .max_word = 9 * 15}> {
  static Scales<16> scales(const uint8_t* block) {
    Scales<16> s;
    uint32_t d = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t packed = load_as<uint16_t>(block + 48 + i * 2);
      d |= packed >> 12 << (i * 4);
      for (int g = 0; g < 4; ++g)
        s.scale[i * 4 + g] = static_cast<int16_t>(2 * (packed >> (g * 3) & 7) + 1);
    }
    s.d = simd::half_to_float(static_cast<uint16_t>(d)) * 0.125f;
    return s;
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    const uint32_t low = load_as<uint32_t>(block + slice * 4);
    const uint32_t high = load_as<uint16_t>(block + 32 + slice * 2);
    const simd::U8x32 grid =
        gather_runs(kGridIq1S, four_indices<4>(low, high) & 0x07ff07ff07ff07ff);
    // Each run's shift: +1 or -1 in all of its eight lanes.
    const auto shift = [&](int run) -> uint64_t {
      return high >> (run * 4) & 8 ? 0xffffffffffffffff : 0x0101010101010101;
    };
    return grid + simd::from_words(shift(0), shift(1), shift(2), shift(3));
  }

  static ScaleBytes scale_bytes(const uint8_t* block) {
    const uint64_t packed = load_as<uint64_t>(block + 48);  // four words: 12 bits of scales, 4 of d
    const uint64_t d = (packed >> 12 & 15) | (packed >> 24 & 0xf0) | (packed >> 36 & 0xf00) |
                       (packed >> 48 & 0xf000);
    const auto eight = [](uint64_t two_words) {
      const uint64_t fields = (two_words & 0xfff) | (two_words >> 4 & 0xfff000);
      return spread_fields<3>(fields) << 1 | kOnes;
    };
    return {simd::half_to_float(static_cast<uint16_t>(d)) * 0.125f,
            0,
            {eight(packed), eight(packed >> 32)},
            {}};
  }
};

}  // namespace ingot::INGOT_ISA
