// Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q8_K: one scale taken from the extreme weight of the block,
// every weight rounded to the nearest step. No search: these are defined to the last
// bit, by the `gguf` package (Q8_K: by llama.cpp), and ties, overflow of the half-precision
// scale to infinity and the like follow it.
//
//     _0  d = extreme / -8 (or -16): the weight of largest magnitude takes the lowest
//         level, the one without a counterpart above zero
//     _1  d = (max - min) / 15 (or 31), and the minimum itself
//     Q8  d = largest magnitude / 127
//
// Where that definition has no answer this one does: a NaN in a block makes its scale
// NaN, and a level that is not finite (a weight over a subnormal scale, infinity times
// zero) counts as 0.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "formats/all.h"
#include "kernels/encode_extremes.h"
#include "kernels/encode_pack.h"
#include "simd/half.h"

namespace ingot::INGOT_ISA {

inline float inverse_or_zero(float d) { return d == 0 ? 0.0f : 1.0f / d; }

// The whole part, within 0..kMax; 0 for what is not finite. Finite levels of the formats
// here are never far outside their range.
template <int kMax>
inline uint8_t whole_part(float value) {
  const float finite = value < 256 ? value : 0.0f, top = kMax;
  return static_cast<uint8_t>(static_cast<int>(finite > 0 ? (finite < top ? finite : top) : 0.0f));
}

// To the nearest whole number, halves away from zero; 0 for what is not finite.
inline int8_t rounded(float value) {
  const float finite = std::fabs(value) < 256 ? value : 0.0f;
  const int whole = static_cast<int>(finite);
  return static_cast<int8_t>(whole + static_cast<int>(2 * (finite - static_cast<float>(whole))));
}

// kHalf: half the number of levels, 8 or 16.
template <int kHalf>
inline float signed_levels(const float* values, uint8_t* levels) {
  const float d = extreme_value(values, 32) / -kHalf;
  const float inverse = inverse_or_zero(d);
  for (int i = 0; i < 32; ++i)
    levels[i] = whole_part<2 * kHalf - 1>(values[i] * inverse + (kHalf + 0.5f));
  return d;
}

// kMax: the highest level, 15 or 31.
template <int kMax>
inline float levels_above(float min, float max, const float* values, uint8_t* levels) {
  const float d = (max - min) / kMax;
  const float inverse = inverse_or_zero(d);
  for (int i = 0; i < 32; ++i) levels[i] = whole_part<kMax>((values[i] - min) * inverse + 0.5f);
  return d;
}

inline void store_fifth_bits(const uint8_t* levels, uint8_t* out) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(levels[i] >> 4) << i;
  store_as(out, bits);
}

inline void Q4_0::encode(const float* values, uint8_t* block, int64_t count) {
  for (; count > 0; --count, values += 32, block += 18) {
    uint8_t levels[32];
    store_as(block, simd::float_to_half_bits(signed_levels<8>(values, levels)));
    pack_nibbles<16>(levels, block + 2);
  }
}

inline void Q4_1::encode(const float* values, uint8_t* block, int64_t count) {
  for (; count > 0; --count, values += 32, block += 20) {
    uint8_t levels[32];
    const Range range = range_of(values, 32);
    const float d = levels_above<15>(range.min, range.max, values, levels);
    store_as(block, simd::float_to_half_bits(d));
    store_as(block + 2, simd::float_to_half_bits(range.min));
    pack_nibbles<16>(levels, block + 4);
  }
}

inline void Q5_0::encode(const float* values, uint8_t* block, int64_t count) {
  for (; count > 0; --count, values += 32, block += 22) {
    uint8_t levels[32];
    store_as(block, simd::float_to_half_bits(signed_levels<16>(values, levels)));
    store_fifth_bits(levels, block + 2);
    pack_nibbles<16>(levels, block + 6);
  }
}

inline void Q5_1::encode(const float* values, uint8_t* block, int64_t count) {
  for (; count > 0; --count, values += 32, block += 24) {
    uint8_t levels[32];
    const Range range = range_of(values, 32);
    const float d = levels_above<31>(range.min, range.max, values, levels);
    store_as(block, simd::float_to_half_bits(d));
    store_as(block + 2, simd::float_to_half_bits(range.min));
    store_fifth_bits(levels, block + 4);
    pack_nibbles<16>(levels, block + 8);
  }
}

inline void Q8_0::encode(const float* values, uint8_t* block, int64_t count) {
  for (; count > 0; --count, values += 32, block += 34) {
    const float d = largest_magnitude(values, 32) / 127;
    const float inverse = inverse_or_zero(d);
    store_as(block, simd::float_to_half_bits(d));
    int8_t levels[32];
    for (int i = 0; i < 32; ++i) levels[i] = rounded(values[i] * inverse);
    std::memcpy(block + 2, levels, 32);
  }
}

// The extreme weight becomes -127; halves go to the even level.
inline void Q8_K::encode(const float* values, uint8_t* block, int64_t count) {
  for (; count > 0; --count, values += 256, block += 292) {
    const float extreme = extreme_value(values, 256);
    const float inverse = extreme == 0 ? 0.0f : -127 / extreme;
    store_as(block, inverse_or_zero(inverse));
    for (int group = 0; group < 16; ++group) {
      int16_t sum = 0;
      for (int i = group * 16; i < group * 16 + 16; ++i) {
        const float level = values[i] * inverse;
        const bool usable = std::fabs(level) <= 128;  // not NaN
        const float whole = ((usable ? level : 0.0f) + 0x1.8p23f) - 0x1.8p23f;
        const int bounded = std::min(static_cast<int>(whole), 127);
        block[4 + i] = static_cast<uint8_t>(bounded);
        sum = static_cast<int16_t>(sum + bounded);
      }
      store_as(block + 260 + 2 * group, sum);
    }
  }
}

}  // namespace ingot::INGOT_ISA
