// Types that are no blocks: floats and integers, one value after the other.
#pragma once

#include <bit>
#include <cstdint>

#include "formats/block.h"

namespace ingot::INGOT_ISA {

struct Half {
  uint16_t bits;
  explicit operator float() const { return simd::half_to_float(bits); }
};

struct Bfloat16 {
  uint16_t bits;
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

template <class T>
void decode_plain(const uint8_t* values, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(load_as<T>(values + i * sizeof(T)));
}

}  // namespace ingot::INGOT_ISA
