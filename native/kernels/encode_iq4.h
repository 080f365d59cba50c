// IQ4_NL and IQ4_XS: the search of encode_search_scale.h over the uneven levels of
// formats/iq4_nl.h.
#pragma once

#include "formats/all.h"
#include "kernels/encode_pack.h"
#include "kernels/encode_search_scale.h"

namespace ingot::INGOT_ISA {

using Iq4Levels = TableLevels<kIq4Levels>;

// Blocks of 32 under one half-precision scale: no groups, so each block is one. Of the
// scales, the nearest to the one that fits best and the two beside it are tried: for tiny
// weights the steps between half-precision numbers are large.
inline void IQ4_NL::encode(const float* values, uint8_t* block, int64_t count) {
  constexpr int kLanes = 16;
  using Lanes = simd::FloatLanes<kLanes>;
  for (; count > 0; count -= kLanes, values += kLanes * 32) {
    const LoneGroups<kLanes, 32> blocks(values, count);
    const Lanes wanted = fit_scale<Iq4Levels, 32>(blocks.weight);
    const Lanes scale = best_trial<Iq4Levels, 32, 3, Lanes>(blocks.weight, [&](int trial) {
      float scales[kLanes];
      for (int g = 0; g < kLanes; ++g) {
        const HalfScale nearest = HalfScale::nearest(wanted[g], blocks.unit[g]);
        scales[g] = nearest.neighbour(trial - 1, blocks.unit[g]).value;
      }
      return Lanes::load(scales);
    });
    uint8_t index[kLanes * 32];
    store_indices<Iq4Levels, kLanes, 32>(blocks.weight, scale, index);
    for (int g = 0; g < kLanes && g < count; ++g, block += 18) {
      const float d = blocks.searched(g) ? scale[g] * blocks.unit[g] : blocks.unsearched[g];
      store_as(block, simd::float_to_half_bits(d));
      pack_nibbles<16>(index + 32 * g, block + 2);
    }
  }
}

inline void IQ4_XS::encode(const float* values, uint8_t* block, int64_t count) {
  for (; count > 0; --count, values += 256, block += 136) {
    const auto found = search_scaled_block<Iq4Levels, -32, 8, 32>(values);
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

}  // namespace ingot::INGOT_ISA
