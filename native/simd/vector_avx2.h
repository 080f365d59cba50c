// vector.h's operations for AVX2 with FMA.
#pragma once

#include <cstdint>

#include "simd/simd.h"

namespace ingot::INGOT_ISA::simd {

inline constexpr int kLanes = 8;
// Typed by their lanes, as in vector_avx512.h.
using Ints __attribute__((vector_size(32))) = int32_t;
using Pairs __attribute__((vector_size(32))) = int16_t;
inline Ints ints(__m256i v) { return reinterpret_cast<Ints>(v); }
inline Pairs pairs(__m256i v) { return reinterpret_cast<Pairs>(v); }
inline __m256i bits(Ints v) { return reinterpret_cast<__m256i>(v); }
inline __m256i bits(Pairs v) { return reinterpret_cast<__m256i>(v); }
struct Words {
  Pairs v[2];
};

inline Floats zero_floats() { return _mm256_setzero_ps(); }
inline Floats load_floats(const float* p) { return _mm256_loadu_ps(p); }
inline Floats load_halves(const uint8_t* p) { return _mm256_cvtph_ps(load16(p).v); }
inline Floats load_bfloat16s(const uint8_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p).v), 16));
}
inline Floats load_halves_at(const uint8_t* p, int64_t stride) {
  return _mm256_cvtph_ps(load_words_at(p, stride));
}
struct ByteFloats {
  Floats v[2];
};
inline ByteFloats signed_floats(U8x16 bytes) {
  return {{_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes.v)),
           _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes.v, 8)))}};
}
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }

inline float sum(Floats v) {
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

// Halves as sum() does, but of two vectors at once.
inline Floats sums(const Floats (&v)[8]) {
  __m256 four[4], two[2];
  for (int i = 0; i < 4; ++i)  // v[i] in the lower half, v[i + 4] in the upper
    four[i] = _mm256_add_ps(_mm256_permute2f128_ps(v[i], v[i + 4], 0x20),
                            _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));
  for (int i = 0; i < 2; ++i)
    two[i] = _mm256_add_ps(_mm256_shuffle_ps(four[i], four[i + 2], 0x44),
                           _mm256_shuffle_ps(four[i], four[i + 2], 0xee));
  const __m256 one = _mm256_add_ps(_mm256_shuffle_ps(two[0], two[1], 0x88),
                                   _mm256_shuffle_ps(two[0], two[1], 0xdd));
  return _mm256_permute_ps(one, 0xd8);
}

inline Ints zero_ints() { return Ints{}; }
inline Ints add(Ints a, Ints b) { return a + b; }
inline Ints larger(Ints a, Ints b) { return ints(_mm256_max_epi32(bits(a), bits(b))); }
inline Ints magnitude_bits(Floats v) {
  return ints(_mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff)));
}
inline void store_ints(int32_t* p, Ints v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bits(v));
}
inline Ints round_to_ints(Floats v) { return ints(_mm256_cvtps_epi32(v)); }
inline Floats to_floats(Ints v) { return _mm256_cvtepi32_ps(bits(v)); }
inline int32_t sum(Ints v) {
  const __m128i quarter =
      _mm_add_epi32(_mm256_castsi256_si128(bits(v)), _mm256_extracti128_si256(bits(v), 1));
  const __m128i pair = _mm_add_epi32(quarter, _mm_unpackhi_epi64(quarter, quarter));
  return _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32(pair, 1)));
}
inline void store_words(int16_t* p, Ints v) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(bits(v), bits(v)), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}

inline Pairs load_pairs(const int16_t* p) {
  return pairs(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void store_pairs(int16_t* p, Pairs v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bits(v));
}
inline Pairs splat_pair(const int16_t* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return pairs(_mm256_set1_epi32(pair));
}
inline Ints dot(Ints sum, Pairs a, Pairs b) {
#if defined(__AVXVNNI__)
  return ints(_mm256_dpwssd_avx_epi32(bits(sum), bits(a), bits(b)));
#else
  return sum + ints(_mm256_madd_epi16(bits(a), bits(b)));
#endif
}

inline Ints splat_int(int32_t n) { return ints(_mm256_set1_epi32(n)); }
inline void store_bytes(int8_t* p, Ints v) {
  const __m256i words = _mm256_packs_epi32(bits(v), bits(v));
  const __m256i bytes = _mm256_packs_epi16(words, words);  // four of each half, twice
  const __m128i both =
      _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), both);
}
#if defined(__AVXVNNI__)
template <int most, int i, int quads>
inline void add_quad(Ints& sum, Pairs&, Pairs unsigned_bytes, Pairs signed_bytes) {
  sum = ints(_mm256_dpbusd_avx_epi32(bits(sum), bits(unsigned_bytes), bits(signed_bytes)));
}
inline constexpr int kMostByte = 255;
#else
inline Pairs multiply_byte_pairs(Pairs unsigned_bytes, Pairs signed_bytes) {
  return pairs(_mm256_maddubs_epi16(bits(unsigned_bytes), bits(signed_bytes)));
}
#endif
inline Pairs as_pairs(const U8x32 (&v)[1]) { return pairs(v[0].v); }

template <class Function>
inline Words each_half(Function function) {
  return {{function(0), function(1)}};
}
inline Words widen(U8x32 v) {
  return {
      {pairs(_mm256_cvtepi8_epi16(low_half(v).v)), pairs(_mm256_cvtepi8_epi16(high_half(v).v))}};
}
inline Words widen_unsigned(U8x32 v) {
  return {
      {pairs(_mm256_cvtepu8_epi16(low_half(v).v)), pairs(_mm256_cvtepu8_epi16(high_half(v).v))}};
}
inline Words load_two_words(const int16_t* p, const int16_t* q) {
  return {{load_pairs(p), load_pairs(q)}};
}
inline Words load_words(const int16_t* p) { return load_two_words(p, p + 16); }
inline void store_words(int16_t* p, Words w) {
  store_pairs(p, w.v[0]);
  store_pairs(p + 16, w.v[1]);
}

// Every scale twice, to be broadcast from memory, which is free.
struct GroupScales {
  alignas(64) int16_t pair[16][2];
};
inline void set_group_scales(GroupScales& scales, uint64_t first, uint64_t last) {
  const auto repeat_eight = [&](uint64_t bytes, int at) {
    const __m256i words = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
    const __m256i repeated = _mm256_blend_epi16(_mm256_slli_epi32(words, 16), words, 0x55);
    _mm256_store_si256(reinterpret_cast<__m256i*>(scales.pair[at]), repeated);
  };
  repeat_eight(first, 0);
  repeat_eight(last, 8);
  keep_in_memory(scales.pair);
}
template <int g>
inline Words splat_group(const GroupScales& scales) {
  return {{splat_pair(scales.pair[g]), splat_pair(scales.pair[g])}};
}
template <int g>
inline Words splat_two_groups(const GroupScales& scales) {
  return {{splat_pair(scales.pair[g]), splat_pair(scales.pair[g + 1])}};
}
inline Words scale(Words w, Words v) {
  return each_half([&](int i) { return w.v[i] * v.v[i]; });
}
inline Words keep(Words w, int16_t m) {
  return each_half([&](int i) { return w.v[i] & pairs(_mm256_set1_epi16(m)); });
}
inline Words merge(Words w, Words v, int16_t m) {
  const Words kept = keep(v, m);
  return each_half([&](int i) { return w.v[i] | kept.v[i]; });
}
inline Words subtract(Words w, int16_t n) {
  return each_half([&](int i) { return w.v[i] - pairs(_mm256_set1_epi16(n)); });
}
template <int n>
inline Words shift_right(Words w) {
  return each_half([&](int i) { return pairs(_mm256_srli_epi16(bits(w.v[i]), n)); });
}
template <int n>
inline Words shift_left(Words w) {
  return each_half([&](int i) { return pairs(_mm256_slli_epi16(bits(w.v[i]), n)); });
}

struct HalfSums {
  Ints lo, hi;
};
struct HalfFactors {
  Floats lo, hi;
};
inline HalfSums zero_half_sums() { return {zero_ints(), zero_ints()}; }
inline HalfSums dot_halves(HalfSums sums, Words w, Words v) {
  return {dot(sums.lo, w.v[0], v.v[0]), dot(sums.hi, w.v[1], v.v[1])};
}
inline HalfFactors load_half_factors(const float* p) {
  return {splat_float(p[0]), splat_float(p[1])};
}
inline Floats add_scaled(Floats total, HalfSums sums, HalfFactors factors) {
  return multiply_add(to_floats(sums.hi), factors.hi,
                      multiply_add(to_floats(sums.lo), factors.lo, total));
}

// For turned blocks (turned.h).
template <class Bytes>
inline Bytes widen_splat(U8x32 v) {
  return reinterpret_cast<Bytes>(v.v);
}
template <class Bytes>
inline Bytes lookup_bytes(U8x16 table, Bytes index) {
  return reinterpret_cast<Bytes>(lookup16(table, {reinterpret_cast<__m256i>(index)}).v);
}
// Byte i of every 16 is byte control[i] of the same 16.
template <class Bytes>
inline Bytes permute_sixteens(Bytes v, U8x16 control) {
  return reinterpret_cast<Bytes>(
      _mm256_shuffle_epi8(reinterpret_cast<__m256i>(v), _mm256_broadcastsi128_si256(control.v)));
}
inline Floats halves_in_lanes(Ints v) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(bits(v), bits(v)), 0x08);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
template <class Bytes>
inline Bytes load_every_fourth(const uint8_t* const* rows, int offset) {
  return reinterpret_cast<Bytes>(join(load16(rows[0] + offset), load16(rows[4] + offset)).v);
}
template <class Bytes>
inline void transpose_quarters(Bytes (&v)[4]) {
  const auto of = [&](int i) { return reinterpret_cast<__m256i>(v[i]); };
  const __m256i a = _mm256_unpacklo_epi32(of(0), of(1)), b = _mm256_unpackhi_epi32(of(0), of(1));
  const __m256i c = _mm256_unpacklo_epi32(of(2), of(3)), d = _mm256_unpackhi_epi32(of(2), of(3));
  v[0] = reinterpret_cast<Bytes>(_mm256_unpacklo_epi64(a, c));
  v[1] = reinterpret_cast<Bytes>(_mm256_unpackhi_epi64(a, c));
  v[2] = reinterpret_cast<Bytes>(_mm256_unpacklo_epi64(b, d));
  v[3] = reinterpret_cast<Bytes>(_mm256_unpackhi_epi64(b, d));
}

inline void transpose(Pairs (&row)[8]) {
  __m256i t[8];
  for (int i = 0; i < 8; i += 4) {  // 4x4 transposes inside each half
    const __m256i a = _mm256_unpacklo_epi32(bits(row[i]), bits(row[i + 1]));
    const __m256i b = _mm256_unpackhi_epi32(bits(row[i]), bits(row[i + 1]));
    const __m256i c = _mm256_unpacklo_epi32(bits(row[i + 2]), bits(row[i + 3]));
    const __m256i d = _mm256_unpackhi_epi32(bits(row[i + 2]), bits(row[i + 3]));
    t[i] = _mm256_unpacklo_epi64(a, c);
    t[i + 1] = _mm256_unpackhi_epi64(a, c);
    t[i + 2] = _mm256_unpacklo_epi64(b, d);
    t[i + 3] = _mm256_unpackhi_epi64(b, d);
  }
  for (int i = 0; i < 4; ++i) {  // then the halves
    row[i] = pairs(_mm256_permute2x128_si256(t[i], t[i + 4], 0x20));
    row[i + 4] = pairs(_mm256_permute2x128_si256(t[i], t[i + 4], 0x31));
  }
}

}  // namespace ingot::INGOT_ISA::simd
