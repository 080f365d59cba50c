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

// What formats with such a beginning have in common.
struct SixBitPairs {
  static Scales<8> scales(const uint8_t* block) {
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
  static ScaleBytes scale_bytes(const uint8_t* block) {
    const uint64_t a = load_as<uint32_t>(block + 4), b = load_as<uint32_t>(block + 8);
    const uint64_t c = load_as<uint32_t>(block + 12);
    const uint64_t scale_hi = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
    const uint64_t min_hi = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    return {load_f16(block),
            -load_f16(block + 2),
            {(a & 0x3f3f3f3f) | scale_hi << 32, 0},
            {(b & 0x3f3f3f3f) | min_hi << 32, 0}};
  }

  template <int g, class Turned>
  static auto turned_scale(Turned block) {
    return turned_six_bits<g, 0>(block + 4, block + 12);
  }
  template <int g, class Turned>
  static auto turned_min(Turned block) {
    return turned_six_bits<g, 4>(block + 8, block + 12);
  }
  template <class Turned>
  static auto turned_d(Turned block) {
    return block.half();
  }
  template <class Turned>
  static auto turned_m(Turned block) {
    return -(block + 2).half();
  }

 private:
  // Six bits of group g: all in its own byte, or the low four, from bit `low` on, in a shared one.
  template <int g, int low, class Turned>
  static auto turned_six_bits(Turned own, Turned shared) {
    constexpr int shift = g % 4 * 8;
    if constexpr (g < 4) {
      return own.template field<shift, 6>();
    } else {
      const auto top = own.template field<shift + 6, 2>() << 4;
      return shared.template field<shift + low, 4>() | top;
    }
  }
};

}  // namespace ingot::INGOT_ISA
