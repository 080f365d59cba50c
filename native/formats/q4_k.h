// Q4_K: 256 weights in 144 bytes, 4.5 bits each; 8 groups of 32.
//
//   0..1    d     f16, multiplies the group scales
//   2..3    dmin  f16, multiplies the group minimums
//   4..15   scales and minimums, 6 bits each (six_bit_pairs below)
//   16..143 qs    nibbles: 32 bytes hold groups 2j (low) and 2j+1 (high)
//
//   w = (d * scale) * nibble - (dmin * min)
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

// Q4_K and Q5_K pack 8 scales and 8 minimums of 6 bits into 12 bytes: bytes 0..3
// and 4..7 hold scale and min of groups 0..3 in their low 6 bits; bytes 8..11 hold
// the low nibbles of groups 4..7 (scale low, min high), whose top two bits sit in
// the top of bytes 0..3 and 4..7.
inline void unpack_six_bit_pairs(const uint8_t* packed, Scales<8>& out) {
  for (int g = 0; g < 4; ++g) {
    out.scale[g] = packed[g] & 63;
    out.min[g] = packed[g + 4] & 63;
    out.scale[g + 4] = static_cast<int16_t>((packed[g + 8] & 15) | (packed[g] >> 6 << 4));
    out.min[g + 4] = static_cast<int16_t>((packed[g + 8] >> 4) | (packed[g + 4] >> 6 << 4));
  }
}

struct Q4_K : BlockFormat<TensorType::Q4_K, 32, true> {
  static Scales<8> scales(const uint8_t* block) {
    Scales<8> s;
    s.d = load_f16(block);
    s.m = -load_f16(block + 2);
    unpack_six_bit_pairs(block + 4, s);
    return s;
  }

  static simd::U8x32 lanes(const uint8_t* block, int slice) {
    const simd::U8x32 packed = simd::load32(block + 16 + slice / 2 * 32);
    return slice % 2 ? simd::shift_right<4>(packed) : packed & simd::splat(15);
  }
};

}  // namespace ingot::INGOT_ISA
