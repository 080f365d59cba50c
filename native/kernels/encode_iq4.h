// IQ4_NL and IQ4_XS: the search of encode_search_scale.h over the uneven levels of
// formats/iq4_nl.h.
#pragma once

#include "formats/all.h"
#include "kernels/encode_pack.h"
#include "kernels/encode_search_scale.h"

namespace ingot::INGOT_ISA {

using Iq4Levels = TableLevels<kIq4Levels>;

template <class Counts>
inline void encode_iq4_nl(const float* values, const Counts& counts, uint8_t* block,
                          int64_t count) {
  encode_lone_scales<Iq4Levels, 32, 18>(values, counts, block, count,
                                        [](uint16_t d, const uint8_t* levels, uint8_t* to) {
                                          store_as(to, d);
                                          pack_nibbles<16>(levels, to + 2);
                                        });
}

inline void IQ4_NL::encode(const float* values, uint8_t* block, int64_t count) {
  encode_iq4_nl(values, Even{}, block, count);
}

template <class Counts>
inline void encode_iq4_xs(const float* values, const Counts& counts, uint8_t* block,
                          int64_t count) {
  for (int64_t b = 0; b < count; ++b, values += 256, block += 136) {
    const auto counted = counts.template block<8, 32>(8 * b);
    const auto found = search_scaled_block<Iq4Levels, -32, 8, 32>(values, counted);
    uint16_t tops = 0;
    uint8_t lows[8];
    for (int g = 0; g < 8; ++g) {
      const int six_bits = found.scale[g] + 32;
      tops = static_cast<uint16_t>(tops | six_bits >> 4 << (2 * g));
      lows[g] = six_bits & 15;
    }
    store_as(block, found.d);
    store_as(block + 2, tops);
    for (int i = 0; i < 4; ++i)
      block[4 + i] = static_cast<uint8_t>(lows[2 * i] | lows[2 * i + 1] << 4);
    for (int g = 0; g < 8; ++g) pack_nibbles<16>(found.index + 32 * g, block + 8 + 16 * g);
  }
}

inline void IQ4_XS::encode(const float* values, uint8_t* block, int64_t count) {
  encode_iq4_xs(values, Even{}, block, count);
}

}  // namespace ingot::INGOT_ISA
