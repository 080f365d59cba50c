// The extreme weights of a block, found by comparing bits: integers can be compared in any
// order and many at once, and NaN has its place among them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace ingot::INGOT_ISA {

// The largest |value|; NaN if there is one. Without its sign a float's bits are in the order
// of its magnitude, NaN on top.
inline float largest_magnitude(const float* values, int count) {
  uint32_t largest = 0;
  for (int i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  return std::bit_cast<float>(largest);
}

// The first of the values that have the largest magnitude.
inline float extreme_value(const float* values, int count) {
  const float magnitude = largest_magnitude(values, count);
  for (int i = 0; i < count; ++i)
    if (std::fabs(values[i]) == magnitude) return values[i];
  return magnitude;  // NaN
}

struct Range {
  float min, max;
};

// Smallest and largest value, one of them NaN if any is. Flipping the lower bits of
// negative floats puts all floats in the order of their bits as signed integers (where
// zeros of both signs are the smallest, -0 is; there NumPy takes either).
inline Range range_of(const float* values, int count) {
  const auto flip = [](int32_t bits) { return bits ^ (bits >> 31 & 0x7fffffff); };
  int32_t lowest = flip(std::bit_cast<int32_t>(values[0])), highest = lowest;
  for (int i = 1; i < count; ++i) {
    const int32_t key = flip(std::bit_cast<int32_t>(values[i]));
    lowest = std::min(lowest, key);
    highest = std::max(highest, key);
  }
  return {std::bit_cast<float>(flip(lowest)), std::bit_cast<float>(flip(highest))};
}

}  // namespace ingot::INGOT_ISA
