// Small integer scales, eight at a time: the steps that scale_bytes() of several formats shares.
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

inline constexpr uint64_t kNibbles = 0x0f0f0f0f0f0f0f0f;
inline constexpr uint64_t kOnes = 0x0101010101010101;

// Subtracts 32 from each of eight bytes of six bits: bit 5 flipped is the sign.
inline uint64_t centre_six_bits(uint64_t v) {
  constexpr uint64_t kSigns = 0x2020202020202020;
  v ^= kSigns;
  return v | (v & kSigns) << 1 | (v & kSigns) << 2;
}

// Eight fields of `bits` bits that follow each other, to eight bytes.
template <int bits>
inline uint64_t spread_fields(uint64_t v) {
  constexpr auto mask = [](int width) { return (uint64_t{1} << width) - 1; };
  v = (v | v << (32 - 4 * bits)) & mask(4 * bits) * 0x0000000100000001;
  v = (v | v << (16 - 2 * bits)) & mask(2 * bits) * 0x0001000100010001;
  return (v | v << (8 - bits)) & mask(bits) * 0x0101010101010101;
}

// Eight scales of the form 2 * nibble + 1.
inline uint64_t odd_scales(const uint8_t* nibbles) {
  return spread_fields<4>(load_as<uint32_t>(nibbles)) << 1 | kOnes;
}

}  // namespace ingot::INGOT_ISA
