// The 12 bytes in which Q4_K and Q5_K pack 8 scales and 8 minimums of 6 bits: bytes
// 0..3 and 4..7 hold scale and min of groups 0..3 in their low 6 bits; bytes 8..11
// hold the low nibbles of groups 4..7 (scale low, min high), whose top two bits sit
// in the top of bytes 0..3 and 4..7.
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

inline void unpack_six_bit_pairs(const uint8_t* packed, Scales<8>& out) {
  for (int g = 0; g < 4; ++g) {
    out.scale[g] = packed[g] & 63;
    out.min[g] = packed[g + 4] & 63;
    out.scale[g + 4] = static_cast<int16_t>((packed[g + 8] & 15) | (packed[g] >> 6 << 4));
    out.min[g + 4] = static_cast<int16_t>((packed[g + 8] >> 4) | (packed[g + 4] >> 6 << 4));
  }
}

}  // namespace ingot::INGOT_ISA
