// vector.h's sums of products of bytes without VNNI: in 16 bits as long as they fit, then in 32.
#pragma once

#include <cstdint>

#include "simd/turned.h"

namespace ingot::INGOT_ISA::simd {

inline constexpr int kMostInput = 127;
inline constexpr int kMostByte = INT16_MAX / (2 * kMostInput);  // two products fit

template <int most, int i, int quads>
inline void add_quad(Ints& sum, Pairs& part, Pairs unsigned_bytes, Pairs signed_bytes) {
  constexpr int kAtOnce = kMostByte / most;
  static_assert(kAtOnce > 0);
  const Pairs products = multiply_byte_pairs(unsigned_bytes, signed_bytes);
  part = i % kAtOnce == 0 ? products : part + products;
  __asm__("" : "+v"(part));  // gcc would first multiply all quads, then add: too many registers
  if constexpr (i % kAtOnce == kAtOnce - 1 || i == quads - 1) sum = dot(sum, part, Pairs{} + 1);
}

}  // namespace ingot::INGOT_ISA::simd
