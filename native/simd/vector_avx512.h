// vector.h's operations for AVX-512, with VNNI or without (Skylake-X).
#pragma once

#include <cstdint>

#include "simd/simd.h"

namespace ingot::INGOT_ISA::simd {

inline constexpr int kLanes = 16;
// Typed by their lanes: gcc keeps arrays of __m512i in memory where it meets two types.
using Ints __attribute__((vector_size(64))) = int32_t;
using Pairs __attribute__((vector_size(64))) = int16_t;
inline Ints ints(__m512i v) { return reinterpret_cast<Ints>(v); }
inline Pairs pairs(__m512i v) { return reinterpret_cast<Pairs>(v); }
inline __m512i bits(Ints v) { return reinterpret_cast<__m512i>(v); }
inline __m512i bits(Pairs v) { return reinterpret_cast<__m512i>(v); }
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
inline Floats load_halves_at(const uint8_t* p, int64_t stride) {
  return _mm512_zextps256_ps512(_mm256_cvtph_ps(load_words_at(p, stride)));
}
struct ByteFloats {
  Floats v[1];
};
inline ByteFloats signed_floats(U8x16 bytes) {
  return {{_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes.v))}};
}
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

inline float sum(Floats v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

// Halves as sum() does, but of two vectors at once: 3 instructions instead of 8 for each sum.
inline Floats sums(const Floats (&v)[16]) {
  __m512 eight[8], four[4], two[2];
  for (int i = 0; i < 8; ++i)  // v[i] in the lower half, v[i + 8] in the upper
    eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[i], v[i + 8], 0x44),
                             _mm512_shuffle_f32x4(v[i], v[i + 8], 0xee));
  for (int i = 0; i < 4; ++i)  // quarters of v[i], v[i + 8], v[i + 4], v[i + 12]
    four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(eight[i], eight[i + 4], 0x88),
                            _mm512_shuffle_f32x4(eight[i], eight[i + 4], 0xdd));
  for (int i = 0; i < 2; ++i)  // in each quarter two lanes of one, two of the next but one
    two[i] = _mm512_add_ps(_mm512_shuffle_ps(four[i], four[i + 2], 0x44),
                           _mm512_shuffle_ps(four[i], four[i + 2], 0xee));
  const __m512 one = _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x88),
                                   _mm512_shuffle_ps(two[0], two[1], 0xdd));
  const __m512i order = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
  return _mm512_permutexvar_ps(order, one);
}

inline Ints zero_ints() { return Ints{}; }
inline Ints add(Ints a, Ints b) { return a + b; }
inline Ints larger(Ints a, Ints b) { return ints(_mm512_max_epi32(bits(a), bits(b))); }
inline Ints magnitude_bits(Floats v) {
  return ints(_mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff)));
}
inline void store_ints(int32_t* p, Ints v) { _mm512_storeu_si512(p, bits(v)); }
inline Ints splat_int(int32_t n) { return ints(_mm512_set1_epi32(n)); }
inline Ints round_to_ints(Floats v) { return ints(_mm512_cvtps_epi32(v)); }
inline Floats to_floats(Ints v) { return _mm512_cvtepi32_ps(bits(v)); }
inline int32_t sum(Ints v) { return _mm512_reduce_add_epi32(bits(v)); }
inline void store_words(int16_t* p, Ints v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(bits(v)));
}

inline void store_bytes(int8_t* p, Ints v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(bits(v)));
}

inline Pairs load_pairs(const int16_t* p) { return pairs(_mm512_loadu_si512(p)); }
inline void store_pairs(int16_t* p, Pairs v) { _mm512_storeu_si512(p, bits(v)); }
inline Pairs splat_pair(const int16_t* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return pairs(_mm512_set1_epi32(pair));
}
inline Ints dot(Ints sum, Pairs a, Pairs b) {
#if defined(__AVX512VNNI__)
  return ints(_mm512_dpwssd_epi32(bits(sum), bits(a), bits(b)));
#else
  return sum + ints(_mm512_madd_epi16(bits(a), bits(b)));
#endif
}

#if defined(__AVX512VNNI__)
template <int most, int i, int quads>
inline void add_quad(Ints& sum, Pairs&, Pairs unsigned_bytes, Pairs signed_bytes) {
  sum = ints(_mm512_dpbusd_epi32(bits(sum), bits(unsigned_bytes), bits(signed_bytes)));
}
inline constexpr int kMostByte = 255;
#else
inline Pairs multiply_byte_pairs(Pairs unsigned_bytes, Pairs signed_bytes) {
  return pairs(_mm512_maddubs_epi16(bits(unsigned_bytes), bits(signed_bytes)));
}
#endif
inline Pairs as_pairs(const U8x32 (&v)[2]) {
  return pairs(_mm512_inserti64x4(_mm512_castsi256_si512(v[0].v), v[1].v, 1));
}

inline Words widen(U8x32 v) { return {{pairs(_mm512_cvtepi8_epi16(v.v))}}; }
inline Words widen_unsigned(U8x32 v) { return {{pairs(_mm512_cvtepu8_epi16(v.v))}}; }
inline Words load_words(const int16_t* p) { return {{load_pairs(p)}}; }
inline Words load_two_words(const int16_t* p, const int16_t* q) {
  return {{pairs(_mm512_inserti64x4(_mm512_castsi256_si512(load32(p).v), load32(q).v, 1))}};
}
inline void store_words(int16_t* p, Words w) { store_pairs(p, w.v[0]); }

// Groups of 32 weights broadcast their scale from a general register, groups of 16 look two
// scales up; a broadcast from memory would wait for the store before it.
struct GroupScales {
  uint64_t first;
  __m512i words;
};
inline void set_group_scales(GroupScales& scales, uint64_t first, uint64_t last) {
  const __m128i bytes = _mm_set_epi64x(static_cast<int64_t>(last), static_cast<int64_t>(first));
  scales = {first, _mm512_castsi256_si512(_mm256_cvtepi8_epi16(bytes))};
}
template <int g>
inline Words splat_group(const GroupScales& scales) {
  return {{pairs(_mm512_set1_epi16(static_cast<int8_t>(scales.first >> (g * 8))))}};
}
template <int g>
inline Words splat_two_groups(const GroupScales& scales) {
  const __m512i index =
      _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set1_epi16(g)), _mm256_set1_epi16(g + 1), 1);
  return {{pairs(_mm512_permutexvar_epi16(index, scales.words))}};
}
inline Words scale(Words w, Words v) {
  return {{pairs(_mm512_mullo_epi16(bits(w.v[0]), bits(v.v[0])))}};
}
inline Words keep(Words w, int16_t m) {
  return {{pairs(_mm512_and_si512(bits(w.v[0]), _mm512_set1_epi16(m)))}};
}
inline Words merge(Words w, Words v, int16_t m) {
  return {{pairs(_mm512_ternarylogic_epi32(bits(w.v[0]), bits(v.v[0]), _mm512_set1_epi16(m),
                                           0xf8))}};  // a | (b & c)
}
inline Words subtract(Words w, int16_t n) {
  return {{pairs(_mm512_sub_epi16(bits(w.v[0]), _mm512_set1_epi16(n)))}};
}
template <int n>
inline Words shift_right(Words w) {
  return {{pairs(_mm512_srli_epi16(bits(w.v[0]), n))}};
}
template <int n>
inline Words shift_left(Words w) {
  return {{pairs(_mm512_slli_epi16(bits(w.v[0]), n))}};
}

using HalfSums = Ints;
using HalfFactors = Floats;
inline HalfSums zero_half_sums() { return Ints{}; }
inline HalfSums dot_halves(HalfSums sums, Words w, Words v) { return dot(sums, w.v[0], v.v[0]); }
inline HalfFactors load_half_factors(const float* p) {
  return _mm512_mask_mov_ps(_mm512_set1_ps(p[0]), 0xff00, _mm512_set1_ps(p[1]));
}
inline Floats add_scaled(Floats total, HalfSums sums, HalfFactors factors) {
  return multiply_add(to_floats(sums), factors, total);
}

// For turned blocks (turned.h).
template <class Bytes>
inline Bytes widen_splat(U8x32 v) {
  return reinterpret_cast<Bytes>(_mm512_broadcast_i64x4(v.v));
}
template <class Bytes>
inline Bytes lookup_bytes(U8x16 table, Bytes index) {
  return reinterpret_cast<Bytes>(
      _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table.v), reinterpret_cast<__m512i>(index)));
}
// Byte i of every 16 is byte control[i] of the same 16.
template <class Bytes>
inline Bytes permute_sixteens(Bytes v, U8x16 control) {
  return reinterpret_cast<Bytes>(
      _mm512_shuffle_epi8(reinterpret_cast<__m512i>(v), _mm512_broadcast_i32x4(control.v)));
}
inline Floats halves_in_lanes(Ints v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(bits(v))); }
template <class Bytes>
inline Bytes load_every_fourth(const uint8_t* const* rows, int offset) {
  __m512i v = _mm512_castsi128_si512(load16(rows[0] + offset).v);
  v = _mm512_inserti32x4(v, load16(rows[4] + offset).v, 1);
  v = _mm512_inserti32x4(v, load16(rows[8] + offset).v, 2);
  return reinterpret_cast<Bytes>(_mm512_inserti32x4(v, load16(rows[12] + offset).v, 3));
}
template <class Bytes>
inline void transpose_quarters(Bytes (&v)[4]) {
  const auto of = [&](int i) { return reinterpret_cast<__m512i>(v[i]); };
  const __m512i a = _mm512_unpacklo_epi32(of(0), of(1)), b = _mm512_unpackhi_epi32(of(0), of(1));
  const __m512i c = _mm512_unpacklo_epi32(of(2), of(3)), d = _mm512_unpackhi_epi32(of(2), of(3));
  v[0] = reinterpret_cast<Bytes>(_mm512_unpacklo_epi64(a, c));
  v[1] = reinterpret_cast<Bytes>(_mm512_unpackhi_epi64(a, c));
  v[2] = reinterpret_cast<Bytes>(_mm512_unpacklo_epi64(b, d));
  v[3] = reinterpret_cast<Bytes>(_mm512_unpackhi_epi64(b, d));
}

inline void transpose(Pairs (&row)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 4) {  // 4x4 transposes inside each 128-bit quarter
    const __m512i a = _mm512_unpacklo_epi32(bits(row[i]), bits(row[i + 1]));
    const __m512i b = _mm512_unpackhi_epi32(bits(row[i]), bits(row[i + 1]));
    const __m512i c = _mm512_unpacklo_epi32(bits(row[i + 2]), bits(row[i + 3]));
    const __m512i d = _mm512_unpackhi_epi32(bits(row[i + 2]), bits(row[i + 3]));
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
    row[i] = pairs(_mm512_shuffle_i32x4(a, c, 0x88));
    row[i + 4] = pairs(_mm512_shuffle_i32x4(a, c, 0xdd));
    row[i + 8] = pairs(_mm512_shuffle_i32x4(b, d, 0x88));
    row[i + 12] = pairs(_mm512_shuffle_i32x4(b, d, 0xdd));
  }
}

}  // namespace ingot::INGOT_ISA::simd
