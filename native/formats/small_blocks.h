// What the formats of 32 weights share: half floats first, then nibbles, low ones before high
// ones, and in some formats a word of fifth bits.
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

// The d (and, after it, m) of eight blocks in a row.
template <class F>
inline BlockFactors halves_of_blocks(const uint8_t* blocks) {
  BlockFactors factors{simd::load_halves_at(blocks, F::kBytes), simd::zero_floats()};
  if constexpr (F::kHasMin) factors.m = simd::load_halves_at(blocks + 2, F::kBytes);
  return factors;
}

template <int offset>
inline void paired_nibbles(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
  const simd::U8x32 packed = simd::join(simd::load16(a + offset), simd::load16(b + offset));
  out[0] = packed & simd::splat(15);
  out[1] = simd::shift_right<4>(packed);
}

// The fifth bits of the first or the last 16 weights of both blocks.
template <int offset>
inline void add_paired_fifth_bits(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
  const uint32_t first = load_as<uint32_t>(a + offset), second = load_as<uint32_t>(b + offset);
  const simd::U8x32 sixteen = simd::splat(16);
  out[0] = out[0] | (simd::spread_bits((first & 0xffff) | second << 16) & sixteen);
  out[1] = out[1] | (simd::spread_bits(first >> 16 | (second & 0xffff0000)) & sixteen);
}

}  // namespace ingot::INGOT_ISA
