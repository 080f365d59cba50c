// MXFP4 and NVFP4: four-bit floats under a scale that is itself a small float.
//
// MXFP4 is defined to the last bit by the `gguf` package: the scale is the power of two
// that puts the largest weight into the top binade of the levels (4 to 8 steps; what is
// above 6 is cut off), and a weight halfway between two levels takes the smaller. The
// exponent comes from a logarithm rounded to float: a few units in the last place below
// a large power of two that is already the next one. Under 2^-125 it wraps around, to a
// scale under which all weights are 0. A block with a weight that is not finite, about
// which the definition says nothing, has exponent 0.
//
// NVFP4 is searched: the scale of encode_search_scale.h's fit, then the best of the
// eight-bit floats around it.
#pragma once

#include <cmath>
#include <limits>

#include "formats/all.h"
#include "kernels/encode_pack.h"
#include "kernels/encode_rounded.h"
#include "kernels/encode_search_scale.h"

namespace ingot::INGOT_ISA {

inline uint8_t mxfp4_exponent(float largest) {
  if (!(largest > 0 && largest < std::numeric_limits<float>::infinity())) return 0;
  const float logarithm = static_cast<float>(std::log2(static_cast<double>(largest)));
  return static_cast<uint8_t>(static_cast<int>(std::floor(logarithm)) + 125);
}

inline void MXFP4::encode(const float* values, uint8_t* block, int64_t count) {
  for (; count > 0; --count, values += 32, block += 17) {
    block[0] = mxfp4_exponent(largest_magnitude(values, 32));
    const float d = MXFP4::scales(block).d;
    uint8_t levels[32] = {};
    for (int k = 0; k < 7; ++k) {
      // A level that would overflow is out of reach: halving comes after multiplying.
      const float midpoint = kFp4Levels[k] * d * 0.5f + kFp4Levels[k + 1] * d * 0.5f;
      for (int i = 0; i < 32; ++i) levels[i] += std::fabs(values[i]) > midpoint;
    }
    for (int i = 0; i < 32; ++i) levels[i] += levels[i] && values[i] < 0 ? 8 : 0;
    pack_nibbles<16>(levels, block + 1);
  }
}

// The levels of kFp4Levels in rising order.
inline constexpr int8_t kFp4Rising[15] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
using Fp4Levels = TableLevels<kFp4Rising>;

inline constexpr int kTopE4m3 = 0x7e;  // up to here the scales of NVFP4 rise with their code

// The last code whose scale is not above this one.
inline int e4m3_at_most(float scale) {
  int code = 0;
  for (int bit = 64; bit > 0; bit /= 2)
    if (code + bit <= kTopE4m3 && kHalfE4m3[code + bit] <= scale) code += bit;
  return code;
}

// The four groups of 16 in a block share nothing, so groups of several blocks are searched
// at once. A group with a weight that is not finite takes the code of NaN.
inline void NVFP4::encode(const float* values, uint8_t* block, int64_t count) {
  constexpr int kLanes = 16;
  using Lanes = simd::FloatLanes<kLanes>;
  for (int64_t left = 4 * count; left > 0; left -= kLanes, values += kLanes * 16) {
    const LoneGroups<kLanes, 16> groups(values, left);
    constexpr Even::Block<kLanes, 16> even;
    const Lanes wanted = fit_scale<Fp4Levels, 16>(groups.weight, even);
    const Lanes scale = best_trial<Fp4Levels, 16, 4, Lanes>(groups.weight, even, [&](int trial) {
      float scales[kLanes];
      for (int g = 0; g < kLanes; ++g) {
        const int below = e4m3_at_most(std::fabs(wanted[g]) * groups.unit[g]);
        scales[g] = kHalfE4m3[std::clamp(below + trial - 1, 0, kTopE4m3)] / groups.unit[g];
      }
      return Lanes::load(scales);
    });
    uint8_t index[kLanes * 16];
    store_indices<Fp4Levels, kLanes, 16>(groups.weight, scale, index);
    for (uint8_t& level : index) level = level < 7 ? 15 - level : level - 7;  // sign and magnitude
    for (int g = 0; g < kLanes && g < left; ++g) {
      const bool finite = groups.searched(g) || groups.unsearched[g] == 0;
      const int code = finite ? e4m3_at_most(scale[g] * groups.unit[g]) : 0x7f;
      block[g % 4] = static_cast<uint8_t>(code);
      pack_nibbles<8>(index + 16 * g, block + 4 + g % 4 * 8);
      if (g % 4 == 3) block += 36;
    }
  }
}

}  // namespace ingot::INGOT_ISA
