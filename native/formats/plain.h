// Types that are not made of blocks: floats and integers, one value after the other.
#pragma once

#include <bit>
#include <cstdint>

#include "formats/block.h"
#include "simd/half.h"

namespace ingot::INGOT_ISA {

// Rounding to it: nearest, ties to even; beyond 65504 infinity; a NaN keeps the top of its payload.
struct Half {
  uint16_t bits;
  explicit operator float() const { return simd::half_to_float(bits); }
  static Half round(float value) { return {simd::float_to_half_bits(value)}; }
  static simd::Floats load(const uint8_t* p) { return simd::load_halves(p); }
};

// Rounding to it: nearest, ties to even; a NaN becomes a quiet one.
struct Bfloat16 {
  uint16_t bits;
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  static Bfloat16 round(float value) {
    const uint32_t single = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (single + 0x7fffu + (single >> 16 & 1u)) >> 16;
    const uint32_t quiet = single >> 16 | 0x40u;
    const bool is_nan = (single & 0x7fffffffu) > 0x7f800000u;
    return {static_cast<uint16_t>(is_nan ? quiet : rounded)};
  }
  static simd::Floats load(const uint8_t* p) { return simd::load_bfloat16s(p); }
};

template <class T>
void decode_plain(const uint8_t* values, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(load_as<T>(values + i * sizeof(T)));
}

template <class T>
void encode_plain(const float* values, uint8_t* out, int64_t count) {
  if constexpr (requires { T::round(0.0f); }) {
    for (int64_t i = 0; i < count; ++i) {
      const T rounded = T::round(values[i]);
      std::memcpy(out + i * sizeof(T), &rounded, sizeof(T));
    }
  } else {
    static_assert(sizeof(T) == sizeof(float));
    std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
  }
}

}  // namespace ingot::INGOT_ISA
