// vector.h's operations for AVX-512 with VNNI.
#pragma once

#include <cstdint>

#include "simd/simd.h"

namespace ingot::INGOT_ISA::simd {

inline constexpr int kLanes = 16;
using Ints = __m512i;
using Pairs = __m512i;
struct Words {
  Pairs v[1];
};

inline Floats zero_floats() { return _mm512_setzero_ps(); }
inline Floats load_floats(const float* p) { return _mm512_loadu_ps(p); }
inline Floats load_halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Floats load_bfloat16s(const uint8_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

inline float sum(Floats v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

inline Floats splat_runs(const float* p) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_set1_ps(p[0])), _mm256_set1_ps(p[1]), 1);
}

inline Ints zero_ints() { return _mm512_setzero_si512(); }
inline Ints round_to_ints(Floats v) { return _mm512_cvtps_epi32(v); }
inline Floats to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
inline int32_t sum(Ints v) { return _mm512_reduce_add_epi32(v); }
inline void store_words(int16_t* p, Ints v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(v));
}

inline Pairs load_pairs(const int16_t* p) { return _mm512_loadu_si512(p); }
inline void store_pairs(int16_t* p, Pairs v) { _mm512_storeu_si512(p, v); }
inline Pairs splat_pair(const int16_t* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return _mm512_set1_epi32(pair);
}
inline Ints dot(Ints sum, Pairs a, Pairs b) { return _mm512_dpwssd_epi32(sum, a, b); }

inline Words widen(U8x32 v) { return {{_mm512_cvtepi8_epi16(v.v)}}; }
inline Words scale(Words w, int16_t factor) {
  return {{_mm512_mullo_epi16(w.v[0], _mm512_set1_epi16(factor))}};
}
inline Words scale(Words w, int16_t lo, int16_t hi) {
  const __m256i low = _mm256_set1_epi16(lo), high = _mm256_set1_epi16(hi);
  return {{_mm512_mullo_epi16(w.v[0], _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1))}};
}

inline void transpose(Pairs (&row)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 4) {  // 4x4 transposes inside each 128-bit quarter
    const __m512i a = _mm512_unpacklo_epi32(row[i], row[i + 1]);
    const __m512i b = _mm512_unpackhi_epi32(row[i], row[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(row[i + 2], row[i + 3]);
    const __m512i d = _mm512_unpackhi_epi32(row[i + 2], row[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);
    t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  for (int i = 0; i < 4; ++i) {  // then the quarters: t[4 * j + i] has column 4 * quarter + i
    const __m512i a = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x44);
    const __m512i b = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xee);
    const __m512i c = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x44);
    const __m512i d = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xee);
    row[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    row[i + 4] = _mm512_shuffle_i32x4(a, c, 0xdd);
    row[i + 8] = _mm512_shuffle_i32x4(b, d, 0x88);
    row[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace ingot::INGOT_ISA::simd
