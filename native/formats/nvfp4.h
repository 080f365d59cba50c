// NVFP4: 64 weights in 36 bytes, 4.5 bits each; 4 groups of 16 four-bit floats (e2m1),
// each group under an unsigned eight-bit float (e4m3).
//
//   0..3   scales  e4m3 without its sign bit; 0x7f means zero
//   4..35  qs      8 bytes a group: byte i holds weight i (low) and weight i+8 (high)
//
//   w = scale / 2 * kFp4Levels[nibble]
//
// In units of 2^-10 every halved scale is a whole number, of up to 19 bits.
#pragma once

#include <array>

#include "formats/mxfp4.h"

namespace ingot::INGOT_ISA {

// Half of the scale that a byte stores, in units of 2^-10.
constexpr int32_t half_e4m3(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const int32_t units = exponent == 0 ? mantissa : (8 + mantissa) << (exponent - 1);
  return byte == 0x7f ? 0 : units;
}

// The same as a float, for each byte.
inline constexpr auto kHalfE4m3 = [] {
  std::array<float, 256> halves{};
  for (int byte = 0; byte < 256; ++byte)
    halves[byte] = static_cast<float>(half_e4m3(static_cast<uint8_t>(byte))) * 0x1p-10f;
  return halves;
}();

struct NVFP4
    : BlockFormat<Layout{
          .type = TensorType{40}, .weights = 64, .bytes = 36, .group = 16, .max_word = 12}> {
  static Scales<4, int32_t> scales(const uint8_t* block) {
    Scales<4, int32_t> s;
    s.d = 0x1p-10f;
    for (int g = 0; g < 4; ++g) s.scale[g] = half_e4m3(block[g]);
    return s;
  }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    const simd::U8x32 low_then_high = simd::nibbles(simd::load16(block + 4 + slice * 16));
    return simd::lookup16(simd::load16(kFp4Levels), simd::swap_middle_quarters(low_then_high));
  }

  static float group_factor(const uint8_t* block, int g) { return kHalfE4m3[block[g]]; }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
