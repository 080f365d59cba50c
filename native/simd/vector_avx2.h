// vector.h's operations for AVX2 with FMA.
#pragma once

#include <cstdint>

#include "simd/simd.h"

namespace ingot::INGOT_ISA::simd {

inline constexpr int kLanes = 8;
using Ints = __m256i;
using Pairs = __m256i;
struct Words {
  Pairs v[2];
};

inline Floats zero_floats() { return _mm256_setzero_ps(); }
inline Floats load_floats(const float* p) { return _mm256_loadu_ps(p); }
inline Floats load_halves(const uint8_t* p) { return _mm256_cvtph_ps(load16(p).v); }
inline Floats load_bfloat16s(const uint8_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p).v), 16));
}
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }

inline float sum(Floats v) {
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

inline Floats splat_runs(const float* p) { return splat_float(p[0]); }

inline Ints zero_ints() { return _mm256_setzero_si256(); }
inline Ints round_to_ints(Floats v) { return _mm256_cvtps_epi32(v); }
inline Floats to_floats(Ints v) { return _mm256_cvtepi32_ps(v); }
inline int32_t sum(Ints v) {
  const __m128i quarter = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i pair = _mm_add_epi32(quarter, _mm_unpackhi_epi64(quarter, quarter));
  return _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32(pair, 1)));
}
inline void store_words(int16_t* p, Ints v) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(v, v), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}

inline Pairs load_pairs(const int16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline void store_pairs(int16_t* p, Pairs v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
}
inline Pairs splat_pair(const int16_t* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return _mm256_set1_epi32(pair);
}
inline Ints dot(Ints sum, Pairs a, Pairs b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

inline Words widen(U8x32 v) {
  return {{_mm256_cvtepi8_epi16(low_half(v).v), _mm256_cvtepi8_epi16(high_half(v).v)}};
}
inline Words scale(Words w, int16_t lo, int16_t hi) {
  return {{_mm256_mullo_epi16(w.v[0], _mm256_set1_epi16(lo)),
           _mm256_mullo_epi16(w.v[1], _mm256_set1_epi16(hi))}};
}

inline Words scale(Words w, int16_t factor) { return scale(w, factor, factor); }

inline void transpose(Pairs (&row)[8]) {
  __m256i t[8];
  for (int i = 0; i < 8; i += 4) {  // 4x4 transposes inside each half
    const __m256i a = _mm256_unpacklo_epi32(row[i], row[i + 1]);
    const __m256i b = _mm256_unpackhi_epi32(row[i], row[i + 1]);
    const __m256i c = _mm256_unpacklo_epi32(row[i + 2], row[i + 3]);
    const __m256i d = _mm256_unpackhi_epi32(row[i + 2], row[i + 3]);
    t[i] = _mm256_unpacklo_epi64(a, c);
    t[i + 1] = _mm256_unpackhi_epi64(a, c);
    t[i + 2] = _mm256_unpacklo_epi64(b, d);
    t[i + 3] = _mm256_unpackhi_epi64(b, d);
  }
  for (int i = 0; i < 4; ++i) {  // then the halves
    row[i] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x20);
    row[i + 4] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x31);
  }
}

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace ingot::INGOT_ISA::simd
