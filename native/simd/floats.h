// Sixteen floats at once, for kernels on activations.
//
//     F32x16::load(p) splat(x)     v.store(p)     load_halves16(p)
//     v + w   v - w   v * w   max(v, w)   min(v, w)      of a NaN and a number: w
//     fma(a, b, c)                 a * b + c, in one rounding where the hardware has it
//     sum(v) maximum(v)            over the lanes, in a fixed order
//     exp(v)                       within 2 ULP from -87.3 to 88.7, clamped outside
//     tanh(v)                      within 2e-7
//
// NaN stays NaN. A width that is not a multiple of 16 is handled by load_part and store_part.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/half.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(INGOT_NEON)
#include <arm_neon.h>
#endif

namespace ingot::INGOT_ISA::simd {

#if defined(__AVX512F__)

struct F32x16 {
  __m512 v;
  static F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static F32x16 splat(float x) { return {_mm512_set1_ps(x)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
};
inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F32x16 round(F32x16 a) { return {_mm512_roundscale_ps(a.v, 0)}; }
// a * 2^n for whole n in -126 .. 127
inline F32x16 scale_by_power(F32x16 a, F32x16 n) { return {_mm512_scalef_ps(a.v, n.v)}; }

#else

// Halves (AVX2), quarters (NEON) or single lanes (plain C++) of the same sixteen.
#if defined(__AVX2__)
using Piece = __m256;
inline constexpr int kPieces = 2;
inline Piece load_piece(const float* p) { return _mm256_loadu_ps(p); }
inline Piece splat_piece(float x) { return _mm256_set1_ps(x); }
inline void store_piece(float* p, Piece v) { _mm256_storeu_ps(p, v); }
inline Piece add_piece(Piece a, Piece b) { return _mm256_add_ps(a, b); }
inline Piece sub_piece(Piece a, Piece b) { return _mm256_sub_ps(a, b); }
inline Piece mul_piece(Piece a, Piece b) { return _mm256_mul_ps(a, b); }
inline Piece div_piece(Piece a, Piece b) { return _mm256_div_ps(a, b); }
inline Piece max_piece(Piece a, Piece b) { return _mm256_max_ps(a, b); }
inline Piece min_piece(Piece a, Piece b) { return _mm256_min_ps(a, b); }
inline Piece fma_piece(Piece a, Piece b, Piece c) { return _mm256_fmadd_ps(a, b, c); }
inline Piece round_piece(Piece a) { return _mm256_round_ps(a, 0); }
inline Piece scale_piece(Piece a, Piece n) {
  const __m256i bits = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), bits));
}
#elif defined(INGOT_NEON)
using Piece = float32x4_t;
inline constexpr int kPieces = 4;
inline Piece load_piece(const float* p) { return vld1q_f32(p); }
inline Piece splat_piece(float x) { return vdupq_n_f32(x); }
inline void store_piece(float* p, Piece v) { vst1q_f32(p, v); }
inline Piece add_piece(Piece a, Piece b) { return vaddq_f32(a, b); }
inline Piece sub_piece(Piece a, Piece b) { return vsubq_f32(a, b); }
inline Piece mul_piece(Piece a, Piece b) { return vmulq_f32(a, b); }
inline Piece div_piece(Piece a, Piece b) { return vdivq_f32(a, b); }
inline Piece max_piece(Piece a, Piece b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline Piece min_piece(Piece a, Piece b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline Piece fma_piece(Piece a, Piece b, Piece c) { return vfmaq_f32(c, a, b); }
inline Piece round_piece(Piece a) { return vrndnq_f32(a); }
inline Piece scale_piece(Piece a, Piece n) {
  const int32x4_t bits = vshlq_n_s32(vcvtq_s32_f32(n), 23);
  return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a), bits));
}
#else
using Piece = float;
inline constexpr int kPieces = 16;
inline Piece load_piece(const float* p) { return *p; }
inline Piece splat_piece(float x) { return x; }
inline void store_piece(float* p, Piece v) { *p = v; }
inline Piece add_piece(Piece a, Piece b) { return a + b; }
inline Piece sub_piece(Piece a, Piece b) { return a - b; }
inline Piece mul_piece(Piece a, Piece b) { return a * b; }
inline Piece div_piece(Piece a, Piece b) { return a / b; }
inline Piece max_piece(Piece a, Piece b) { return a > b ? a : b; }
inline Piece min_piece(Piece a, Piece b) { return a < b ? a : b; }
inline Piece fma_piece(Piece a, Piece b, Piece c) { return a * b + c; }
inline Piece round_piece(Piece a) { return __builtin_nearbyintf(a); }
inline Piece scale_piece(Piece a, Piece n) {
  int32_t bits;
  std::memcpy(&bits, &a, 4);
  if (n == n) bits += static_cast<int32_t>(n) * (1 << 23);
  std::memcpy(&a, &bits, 4);
  return a;
}
#endif

struct F32x16 {
  Piece piece[kPieces];
  static F32x16 load(const float* p) {
    F32x16 out;
    for (int i = 0; i < kPieces; ++i) out.piece[i] = load_piece(p + i * (16 / kPieces));
    return out;
  }
  static F32x16 splat(float x) {
    F32x16 out;
    for (int i = 0; i < kPieces; ++i) out.piece[i] = splat_piece(x);
    return out;
  }
  void store(float* p) const {
    for (int i = 0; i < kPieces; ++i) store_piece(p + i * (16 / kPieces), piece[i]);
  }
};

template <class Function, class... Vectors>
inline F32x16 each_piece(Function function, Vectors... vectors) {
  F32x16 out;
  for (int i = 0; i < kPieces; ++i) out.piece[i] = function(vectors.piece[i]...);
  return out;
}
inline F32x16 operator+(F32x16 a, F32x16 b) { return each_piece(add_piece, a, b); }
inline F32x16 operator-(F32x16 a, F32x16 b) { return each_piece(sub_piece, a, b); }
inline F32x16 operator*(F32x16 a, F32x16 b) { return each_piece(mul_piece, a, b); }
inline F32x16 operator/(F32x16 a, F32x16 b) { return each_piece(div_piece, a, b); }
inline F32x16 max(F32x16 a, F32x16 b) { return each_piece(max_piece, a, b); }
inline F32x16 min(F32x16 a, F32x16 b) { return each_piece(min_piece, a, b); }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return each_piece(fma_piece, a, b, c); }
inline F32x16 round(F32x16 a) { return each_piece(round_piece, a); }
inline F32x16 scale_by_power(F32x16 a, F32x16 n) { return each_piece(scale_piece, a, n); }

#endif

// Sixteen half-precision numbers of the file.
inline F32x16 load_halves16(const uint8_t* p) {
#if defined(__AVX512F__)
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
#elif defined(__F16C__)
  const auto half = [&](int i) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i * 16)));
  };
  return {{half(0), half(1)}};
#elif defined(INGOT_NEON)
  const auto quarter = [&](int i) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + i * 8))); };
  return {{quarter(0), quarter(1), quarter(2), quarter(3)}};
#else
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = half_bits_to_float(load_bits(p + 2 * i));
  return F32x16::load(lanes);
#endif
}

// The first n lanes, the others `fill`.
inline F32x16 load_part(const float* p, int64_t n, float fill = 0) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = i < n ? p[i] : fill;
  return F32x16::load(lanes);
}
inline void store_part(float* p, F32x16 v, int64_t n) {
  float lanes[16];
  v.store(lanes);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
}

#if defined(__AVX512F__)
inline float sum(F32x16 v) { return _mm512_reduce_add_ps(v.v); }
inline float maximum(F32x16 v) { return _mm512_reduce_max_ps(v.v); }
#elif defined(INGOT_NEON)
inline float sum(F32x16 v) {
  const float32x4_t four =
      vaddq_f32(vaddq_f32(v.piece[0], v.piece[2]), vaddq_f32(v.piece[1], v.piece[3]));
  return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}
inline float maximum(F32x16 v) {
  return vmaxvq_f32(
      max_piece(max_piece(v.piece[0], v.piece[2]), max_piece(v.piece[1], v.piece[3])));
}
#else
inline float sum(F32x16 v) {
  float lanes[16];
  v.store(lanes);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}
inline float maximum(F32x16 v) {
  float lanes[16];
  v.store(lanes);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i)
      lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
  return lanes[0];
}
#endif

// 2^(x / ln 2): the whole part goes into the exponent, a polynomial does the rest,
// which lies within +-ln(2)/2.
inline F32x16 exp(F32x16 x) {
  x = min(F32x16::splat(88.7f), max(F32x16::splat(-87.3f), x));
  const F32x16 n = round(x * F32x16::splat(1.44269504f));
  F32x16 r = fma(n, F32x16::splat(-0.693145752f), x);  // ln 2 in two parts, for exactness
  r = fma(n, F32x16::splat(-1.42860677e-6f), r);
  F32x16 p = F32x16::splat(1.0f / 5040);
  p = fma(p, r, F32x16::splat(1.0f / 720));
  p = fma(p, r, F32x16::splat(1.0f / 120));
  p = fma(p, r, F32x16::splat(1.0f / 24));
  p = fma(p, r, F32x16::splat(1.0f / 6));
  p = fma(p, r, F32x16::splat(0.5f));
  p = fma(p, r, F32x16::splat(1.0f));
  p = fma(p, r, F32x16::splat(1.0f));
  return scale_by_power(p, n);
}

inline F32x16 tanh(F32x16 x) {
  const F32x16 one = F32x16::splat(1.0f), two = F32x16::splat(2.0f);
  return one - two / (exp(x * two) + one);
}

}  // namespace ingot::INGOT_ISA::simd
