// Q1_0 and Q2_0: one and two bits under one half-precision scale.
//
// Q1_0 keeps signs. The scale with the least error is the mean magnitude, so there is nothing to
// search. If all weights count the same, it is llama.cpp's, to the last bit: magnitudes are added
// in their order. What llama.cpp makes infinite saturates.
//
// Q2_0 is searched (encode_search_scale.h). Its levels are uneven around zero, -1 to 2, so a scale
// may be negative. llama.cpp takes the largest magnitude for the scale; the search, too, puts it on
// level -1, among others, so weights that have three values stay exact.
#pragma once

#include "formats/all.h"
#include "kernels/encode_pack.h"
#include "kernels/encode_search_scale.h"

namespace ingot::INGOT_ISA {

// The bits of a positive scale: the nearest that is finite.
inline uint16_t finite_half_bits(float scale) {
  return std::min<uint16_t>(simd::float_to_half_bits(scale), 0x7bffu);
}

inline void pack_signs(const float* values, uint8_t* out) {
  for (int i = 0; i < 128; i += 8) {
    uint8_t bits = 0;
    for (int k = 0; k < 8; ++k)
      bits = static_cast<uint8_t>(bits | (values[i + k] >= 0 ? 1 : 0) << k);
    out[i / 8] = bits;
  }
}

template <class Counts>
inline void encode_q1_0(const float* values, const Counts& counts, uint8_t* block, int64_t count) {
  constexpr int kLanes = 16;
  using Lanes = simd::FloatLanes<kLanes>;
  for (int64_t b = 0; b < count; b += kLanes) {
    const LoneGroups<kLanes, 128> blocks(values, count - b);
    const auto counted = counts.template block<kLanes, 128>(b);
    Lanes total = 0.0f;
    for (int i = 0; i < 128; ++i) {
      const Lanes& weight = blocks.weight[i];
      total += counted.weighed(max(weight, 0.0f - weight), i);
    }
    const Lanes mean = total * counted.inverse_total();
    for (int g = 0; g < kLanes && b + g < count; ++g, values += 128, block += 18) {
      store_as(block, blocks.searched(g) ? finite_half_bits(mean[g] * blocks.unit[g])
                                         : simd::float_to_half_bits(blocks.unsearched[g]));
      pack_signs(values, block + 2);
    }
  }
}

inline void Q1_0::encode(const float* values, uint8_t* block, int64_t count) {
  encode_q1_0(values, Even{}, block, count);
}

template <class Counts>
inline void encode_q2_0(const float* values, const Counts& counts, uint8_t* block, int64_t count) {
  encode_lone_scales<EvenLevels<-1, 2>, 64, 18>(
      values, counts, block, count, [](uint16_t d, const uint8_t* levels, uint8_t* to) {
        store_as(to, d);
        for (int i = 0; i < 16; ++i, levels += 4)
          to[2 + i] =
              static_cast<uint8_t>(levels[0] | levels[1] << 2 | levels[2] << 4 | levels[3] << 6);
      });
}

inline void Q2_0::encode(const float* values, uint8_t* block, int64_t count) {
  encode_q2_0(values, Even{}, block, count);
}

}  // namespace ingot::INGOT_ISA
