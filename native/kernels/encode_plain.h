// Floats to the types that are not made of blocks, one value after the other.
//
//     F32   a copy
//     F16   nearest, ties to even; beyond 65504 infinity; a NaN keeps the top of its payload
//     BF16  nearest, ties to even; a NaN becomes a quiet one
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/encode_pack.h"
#include "simd/half.h"

namespace ingot::INGOT_ISA {

inline void encode_f32(const float* values, uint8_t* out, int64_t count) {
  std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
}

inline void encode_f16(const float* values, uint8_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) store_as(out + 2 * i, simd::float_to_half_bits(values[i]));
}

inline void encode_bf16(const float* values, uint8_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const uint32_t quiet = bits >> 16 | 0x40u;
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    store_as(out + 2 * i, static_cast<uint16_t>(is_nan ? quiet : rounded));
  }
}

}  // namespace ingot::INGOT_ISA
