// The vector operations block formats are written in, for the instruction set
// this translation unit is compiled for.
//
// Two vector types: U8x32, the 32 weights of a slice, and U8x16, half of one (or
// the 16 bytes of packed nibbles). Signed and unsigned bytes share them; the
// operation says which it means. Every operation exists for every instruction
// set with the same result, so a format is written once.
//
//     load16(p) load32(p)            unaligned loads
//     from_words(a, b, c, d)         four 64-bit words, lowest byte first
//     join(lo, hi)                   two halves to one slice
//     low_half(v) high_half(v)       and back
//     swap_middle_quarters(v)        quarters 0 1 2 3 -> 0 2 1 3
//     splat(b)                       one byte in all lanes
//     v & w   v | w   v ^ w   v + w   v - w      per byte, wrapping
//     shift_right<n>(v) shift_left<n>(v)         per byte, logical
//     move_bit<from, to>(v)          bit `from` of each byte to bit `to`, all others 0
//     nibbles(h)                     16 bytes -> 32 lanes: all low, then all high
//     lookup16(table, v)             table[v[i]], v[i] in 0..15
//     at_least(v, b)                 0xff where v[i] >= b, unsigned, else 0x00
//     spread_bits(bits)              bit i of a 32-bit word -> lane i, 0x00 or 0xff; also of the
//                                    word at an address
//     negate_where(v, bits)          -v[i] where bit i of a 32-bit word is set
//     four_of_each(p)                each of eight bytes four times
//     store32(p, v)                  any alignment
//     load_odd_words(p)              the second, fourth ... of sixteen 32-bit words
//     load_odd_bytes(p)              the second, fourth ... of 64 bytes
//     spread_sevens(v)               four 7-bit fields of each 32-bit word, to bytes
//     top_nibbles(v)                 the top four bits of each 32-bit word, to bytes of 64 bits
//     gather_eights(a, b, c, d)      the 64-bit words at four addresses, lowest byte first
//     gather_fours(at)               the 32-bit words at addresses at(0) .. at(7)
//     store_scaled(out, v, lo, hi)             out[i] = scale * v[i]
//     store_scaled(out, v, lo, hi, mlo, mhi)   out[i] = scale * v[i] + min
//                                    lo for lanes 0..15, hi for 16..31; v signed
//     half_to_float(bits)            IEEE half to float
#pragma once

#include <cstring>

#if defined(__AVX2__)
#include "simd/x86.h"
#elif defined(INGOT_NEON)
#include "simd/neon.h"
#else
#include "simd/scalar.h"
#endif

namespace ingot::INGOT_ISA::simd {

inline U8x32 spread_bits(const uint8_t* p) {
  uint32_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return spread_bits(bits);
}

}  // namespace ingot::INGOT_ISA::simd
