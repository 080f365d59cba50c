// The first 16 bytes of a Q4_K or Q5_K block: two floats, 8 scales and 8 minimums.
//
//   0..1    d     f16, multiplies the scales
//   2..3    dmin  f16, multiplies the minimums
//   4..15   the scales and minimums, 6 bits each: bytes 0..3 and 4..7 of these hold scale
//           and min of groups 0..3 in their low 6 bits; bytes 8..11 hold the low nibbles of
//           groups 4..7 (scale low, min high), whose top two bits sit in the top of bytes
//           0..3 and 4..7
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

inline Scales<8> load_six_bit_pairs(const uint8_t* block) {
  Scales<8> s;
  s.d = load_f16(block);
  s.m = -load_f16(block + 2);
  const uint8_t* packed = block + 4;
  for (int g = 0; g < 4; ++g) {
    s.scale[g] = packed[g] & 63;
    s.min[g] = packed[g + 4] & 63;
    s.scale[g + 4] = static_cast<int16_t>((packed[g + 8] & 15) | (packed[g] >> 6 << 4));
    s.min[g + 4] = static_cast<int16_t>((packed[g + 8] >> 4) | (packed[g + 4] >> 6 << 4));
  }
  return s;
}

// The same as bytes, four at a time.
inline ScaleBytes six_bit_scale_bytes(const uint8_t* block) {
  const uint64_t a = load_as<uint32_t>(block + 4), b = load_as<uint32_t>(block + 8);
  const uint64_t c = load_as<uint32_t>(block + 12);
  const uint64_t scale_hi = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
  const uint64_t min_hi = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
  return {load_f16(block),
          -load_f16(block + 2),
          {(a & 0x3f3f3f3f) | scale_hi << 32, 0},
          {(b & 0x3f3f3f3f) | min_hi << 32, 0}};
}

// The same of a turned block (simd/turned.h): scale or min of group g, of all rows.
template <int g, bool is_min, class Turned>
inline auto turned_six_bits(Turned block) {
  constexpr int shift = g % 4 * 8;
  const auto own = block + (is_min ? 8 : 4), shared = block + 12;
  if constexpr (g < 4) {
    return own.template field<shift, 6>();
  } else {
    return shared.template field<shift + (is_min ? 4 : 0), 4>() | own.template field<shift + 6, 2>()
                                                                      << 4;
  }
}

}  // namespace ingot::INGOT_ISA
