// shifted<left, right>(v): every word of Pairs, first to the left, then with its sign to the right.
#pragma once

#include "simd/vector.h"

namespace ingot::INGOT_ISA::simd {

#if defined(__AVX2__)
template <int left, int right>
inline Pairs shifted(Pairs v) {
  return (v << left) >> right;
}
#elif defined(INGOT_NEON)
template <int left, int right>
inline Pairs shifted(Pairs v) {
  return each_plane(v, [](int16x8_t words) {
    if constexpr (left > 0) words = vshlq_n_s16(words, left);
    return vshrq_n_s16(words, right);
  });
}
#else
template <int left, int right>
inline Pairs shifted(Pairs v) {
  for (int16_t& word : v.word)
    word = static_cast<int16_t>(static_cast<int16_t>(word << left) >> right);
  return v;
}
#endif

}  // namespace ingot::INGOT_ISA::simd
