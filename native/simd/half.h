// IEEE 754 half precision by bits alone, for instruction sets without it and for
// the encoders. Rounds to nearest even, keeps subnormals, infinities and NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace ingot::INGOT_ISA::simd {

// Two bytes of a file, low one first, at any alignment.
inline uint16_t load_bits(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }

inline float half_bits_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  }
  if (magnitude >= 0x0400u) {  // normal: rebias the exponent from 15 to 127
    return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  }
  // Subnormal: the magnitude counts units of 2^-24, exactly representable.
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

inline uint16_t float_to_half_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN: keep the top of the payload, never become infinity
    const uint32_t payload = (magnitude >> 13) & 0x3ffu;
    return static_cast<uint16_t>(sign | 0x7c00u | (payload ? payload : 1u));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds past 65504
  if (magnitude < 0x38800000u) {  // subnormal half: adding 0.5 puts units of 2^-24 in the low bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;  // ties go to the even mantissa
  return static_cast<uint16_t>(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));
}

}  // namespace ingot::INGOT_ISA::simd
