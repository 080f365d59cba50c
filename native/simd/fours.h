// vector.h's operations on four bytes of every lane, where they are kept as pairs: all but NEON.
// Included after the header that has Pairs.
#pragma once

#include <cstdint>

namespace ingot::INGOT_ISA::simd {

using Fours = Pairs;
using Parts = Pairs;
inline Fours load_fours(const uint8_t* p) {
  return load_pairs(reinterpret_cast<const int16_t*>(p));
}
inline void store_fours(uint8_t* p, Fours v) { store_pairs(reinterpret_cast<int16_t*>(p), v); }
inline Fours as_fours(const U8x32 (&slices)[kLanes / 8]) { return as_pairs(slices); }
template <int i>
inline Fours splat_four(const int8_t* p) {
  return splat_pair(reinterpret_cast<const int16_t*>(p + 4 * i));
}
inline constexpr bool kTakesNegativeBytes = false;

}  // namespace ingot::INGOT_ISA::simd
