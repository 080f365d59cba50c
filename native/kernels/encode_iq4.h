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
// weights the steps between half-precision numbers are large. If weights count differently, so are
// those that take the lowest level to the highest or back: for weights that are nearly equal, both
// fit, and one of them is nearer to a half-precision number. pack(d, levels, block) writes one.
template <class Levels, int kBlockBytes, class Counts, class Pack>
inline void encode_lone_scales(const float* values, const Counts& counts, uint8_t* block,
                               int64_t count, Pack pack) {
  constexpr int kLanes = 16;
  constexpr float kTurned = Levels::kLowest / Levels::kHighest;
  using Lanes = simd::FloatLanes<kLanes>;
  for (int64_t b = 0; b < count; b += kLanes, values += kLanes * 32) {
    const LoneGroups<kLanes, 32> blocks(values, count - b);
    const auto counted = counts.template block<kLanes, 32>(b);
    constexpr int kTrials = decltype(counted)::kIsEven ? 3 : 5;
    const Lanes wanted = fit_scale<Levels, 32>(blocks.weight, counted);
    const Lanes scale =
        best_trial<Levels, 32, kTrials, Lanes>(blocks.weight, counted, [&](int trial) {
          const float turned = trial == 3 ? kTurned : trial == 4 ? 1 / kTurned : 1.0f;
          const int steps = trial < 3 ? trial - 1 : 0;
          float scales[kLanes];
          for (int g = 0; g < kLanes; ++g) {
            const HalfScale nearest = HalfScale::nearest(wanted[g] * turned, blocks.unit[g]);
            scales[g] = nearest.neighbour(steps, blocks.unit[g]).value;
          }
          return Lanes::load(scales);
        });
    uint8_t index[kLanes * 32];
    store_indices<Levels, kLanes, 32>(blocks.weight, scale, index);
    for (int g = 0; g < kLanes && b + g < count; ++g, block += kBlockBytes) {
      const float d = blocks.searched(g) ? scale[g] * blocks.unit[g] : blocks.unsearched[g];
      pack(simd::float_to_half_bits(d), index + 32 * g, block);
    }
  }
}

template <class Counts>
inline void encode_iq4_nl(const float* values, const Counts& counts, uint8_t* block,
                          int64_t count) {
  encode_lone_scales<Iq4Levels, 18>(values, counts, block, count,
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
