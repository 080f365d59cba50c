// Bit fields of 32 bytes as 16-bit words: bytes are widened before they are taken apart, which
// takes fewer instructions than the other way round (and slices that share bytes share the
// widening).
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

inline simd::Words wide(const uint8_t* bytes) { return simd::widen_unsigned(simd::load32(bytes)); }

// The low or the high nibbles.
template <bool high>
inline simd::Words nibble_words(simd::Words packed) {
  if constexpr (high) {
    return simd::shift_right<4>(packed);
  } else {
    return simd::keep(packed, 15);
  }
}

// Bits `bit` and up of v moved to bit `to`, where merge() picks them.
template <int bit, int to>
inline simd::Words align_bits(simd::Words v) {
  if constexpr (bit < to) {
    return simd::shift_left<to - bit>(v);
  } else {
    return simd::shift_right<bit - to>(v);
  }
}

}  // namespace ingot::INGOT_ISA
