// simd.h's operations for AVX2 and for AVX-512 (which has single instructions
// where AVX2 needs a few).
#pragma once

// gcc 12 takes its own "undefined" operands for mistakes (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <cstdint>

#include "simd/half.h"

namespace ingot::INGOT_ISA::simd {

struct U8x16 {
  __m128i v;
};
struct U8x32 {
  __m256i v;
};

inline U8x16 load16(const void* p) { return {_mm_loadu_si128(static_cast<const __m128i*>(p))}; }
inline U8x32 load32(const void* p) { return {_mm256_loadu_si256(static_cast<const __m256i*>(p))}; }
inline void store32(void* p, U8x32 v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v.v); }
inline U8x32 join(U8x16 lo, U8x16 hi) { return {_mm256_set_m128i(hi.v, lo.v)}; }
inline U8x32 from_words(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return {_mm256_setr_epi64x(static_cast<int64_t>(a), static_cast<int64_t>(b),
                             static_cast<int64_t>(c), static_cast<int64_t>(d))};
}
inline U8x16 low_half(U8x32 v) { return {_mm256_castsi256_si128(v.v)}; }
inline U8x16 high_half(U8x32 v) { return {_mm256_extracti128_si256(v.v, 1)}; }
inline U8x32 swap_middle_quarters(U8x32 v) { return {_mm256_permute4x64_epi64(v.v, 0xd8)}; }
inline U8x32 splat(uint8_t byte) { return {_mm256_set1_epi8(static_cast<char>(byte))}; }

inline U8x32 operator&(U8x32 a, U8x32 b) { return {_mm256_and_si256(a.v, b.v)}; }
inline U8x32 operator|(U8x32 a, U8x32 b) { return {_mm256_or_si256(a.v, b.v)}; }
inline U8x32 operator^(U8x32 a, U8x32 b) { return {_mm256_xor_si256(a.v, b.v)}; }
inline U8x32 operator+(U8x32 a, U8x32 b) { return {_mm256_add_epi8(a.v, b.v)}; }
inline U8x32 operator-(U8x32 a, U8x32 b) { return {_mm256_sub_epi8(a.v, b.v)}; }

// There are no byte shifts: shift 16-bit lanes and drop what crossed over.
template <int shift>
inline U8x32 shift_right(U8x32 v) {
  return {_mm256_and_si256(_mm256_srli_epi16(v.v, shift),
                           _mm256_set1_epi8(static_cast<char>(0xff >> shift)))};
}
template <int shift>
inline U8x32 shift_left(U8x32 v) {
  return {_mm256_and_si256(_mm256_slli_epi16(v.v, shift),
                           _mm256_set1_epi8(static_cast<char>(0xff << shift)))};
}

template <int from, int to>
inline U8x32 move_bit(U8x32 v) {
  const __m256i moved =
      from < to ? _mm256_slli_epi16(v.v, to - from) : _mm256_srli_epi16(v.v, from - to);
  return {_mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(1 << to)))};
}
inline U8x32 nibbles(U8x16 v) {
  const __m256i both = _mm256_set_m128i(_mm_srli_epi16(v.v, 4), v.v);
  return {_mm256_and_si256(both, _mm256_set1_epi8(15))};
}

inline U8x32 lookup16(U8x16 table, U8x32 index) {
  return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table.v), index.v)};
}

inline U8x32 at_least(U8x32 v, uint8_t bound) {
  const __m256i b = _mm256_set1_epi8(static_cast<char>(bound));
  return {_mm256_cmpeq_epi8(_mm256_max_epu8(v.v, b), v.v)};
}

inline U8x32 spread_bits(uint32_t bits) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  return {_mm256_movm_epi8(bits)};
#else
  // Each lane gets the byte that holds its bit, keeps that bit, compares.
  const __m256i byte_of_lane =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit_of_lane = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i spread =
      _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), byte_of_lane);
  return {_mm256_cmpeq_epi8(_mm256_and_si256(spread, bit_of_lane), bit_of_lane)};
#endif
}

inline U8x32 negate_where(U8x32 v, uint32_t bits) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  return {_mm256_mask_sub_epi8(v.v, bits, _mm256_setzero_si256(), v.v)};
#else
  const U8x32 mask = spread_bits(bits);
  return (v ^ mask) - mask;
#endif
}

inline U8x32 four_of_each(const uint8_t* p) {
  int64_t bytes;
  std::memcpy(&bytes, p, sizeof(bytes));
  const __m256i byte_of_lane = _mm256_setr_epi64x(0x0101010100000000, 0x0303030302020202,
                                                  0x0505050504040404, 0x0707070706060606);
  return {_mm256_shuffle_epi8(_mm256_set1_epi64x(bytes), byte_of_lane)};
}

inline U8x32 load_odd_words(const uint8_t* p) {
  const __m256 low = _mm256_castsi256_ps(load32(p).v), high = _mm256_castsi256_ps(load32(p + 32).v);
  const __m256i mixed = _mm256_castps_si256(_mm256_shuffle_ps(low, high, 0xdd));
  return {_mm256_permute4x64_epi64(mixed, 0xd8)};
}
inline U8x32 load_odd_bytes(const uint8_t* p) {
  const __m256i low = _mm256_srli_epi16(load32(p).v, 8),
                high = _mm256_srli_epi16(load32(p + 32).v, 8);
  return {_mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xd8)};
}
inline U8x32 spread_sevens(U8x32 v) {
  const auto field = [&](__m256i moved, int at) {
    return _mm256_and_si256(moved, _mm256_set1_epi32(0x7f << (8 * at)));
  };
  const __m256i low = _mm256_or_si256(field(v.v, 0), field(_mm256_slli_epi32(v.v, 1), 1));
  const __m256i high =
      _mm256_or_si256(field(_mm256_slli_epi32(v.v, 2), 2), field(_mm256_slli_epi32(v.v, 3), 3));
  return {_mm256_or_si256(low, high)};
}
inline uint64_t top_nibbles(U8x32 v) {
  const __m256i words = _mm256_srli_epi32(v.v, 28);
  const __m128i halves =
      _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(halves, halves)));
}

// Loaded into vectors at once: by way of general registers it takes twice the instructions.
inline U8x32 gather_eights(const uint64_t* a, const uint64_t* b, const uint64_t* c,
                           const uint64_t* d) {
  const auto two = [](const uint64_t* p, const uint64_t* q) {
    const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm_castpd_si128(
        _mm_loadh_pd(_mm_castsi128_pd(low), reinterpret_cast<const double*>(q)));
  };
  return {_mm256_set_m128i(two(c, d), two(a, b))};
}
template <class At>
inline U8x32 gather_fours(At at) {
  const auto four = [&](int i) {
    __m128i v = _mm_cvtsi32_si128(static_cast<int>(*at(i)));
    v = _mm_insert_epi32(v, static_cast<int>(*at(i + 1)), 1);
    v = _mm_insert_epi32(v, static_cast<int>(*at(i + 2)), 2);
    return _mm_insert_epi32(v, static_cast<int>(*at(i + 3)), 3);
  };
  return {_mm256_set_m128i(four(4), four(0))};
}

// Calls body(first_lane, floats): the signed lanes as vectors of floats, in order.
template <class Body>
inline void for_each_float_vector(U8x32 v, Body body) {
  const __m128i lo = low_half(v).v, hi = high_half(v).v;
#if defined(__AVX512F__)
  body(0, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(lo)));
  body(16, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(hi)));
#else
  body(0, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(lo)));
  body(8, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(lo, 8))));
  body(16, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(hi)));
  body(24, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(hi, 8))));
#endif
}

#if defined(__AVX512F__)
using Floats = __m512;
inline Floats splat_float(float x) { return _mm512_set1_ps(x); }
inline Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
#else
using Floats = __m256;
inline Floats splat_float(float x) { return _mm256_set1_ps(x); }
inline Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
#endif

inline void store_scaled(float* out, U8x32 v, float lo, float hi) {
  for_each_float_vector(v, [&](int first, Floats q) {
    store(out + first, multiply(splat_float(first < 16 ? lo : hi), q));
  });
}
// Two roundings, as the formats define it: never a fused multiply-add.
inline void store_scaled(float* out, U8x32 v, float lo, float hi, float min_lo, float min_hi) {
  for_each_float_vector(v, [&](int first, Floats q) {
    const Floats scaled = multiply(splat_float(first < 16 ? lo : hi), q);
    store(out + first, add(scaled, splat_float(first < 16 ? min_lo : min_hi)));
  });
}

inline float half_to_float(uint16_t half) { return _cvtsh_ss(half); }

// Eight words, stride bytes apart. In general registers, because vectors have better to do.
inline __m128i load_words_at(const uint8_t* p, int64_t stride) {
  const auto four = [&](const uint8_t* q) {
    return static_cast<int64_t>(load_bits(q) | static_cast<uint64_t>(load_bits(q + stride)) << 16 |
                                static_cast<uint64_t>(load_bits(q + 2 * stride)) << 32 |
                                static_cast<uint64_t>(load_bits(q + 3 * stride)) << 48);
  };
  return _mm_set_epi64x(four(p + 4 * stride), four(p));
}

// In assembly, because gcc takes a function that only prefetches for one that does nothing.
inline void prefetch(const void* p) {
  __asm__ volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(p)));
}
inline void prefetch_near(const void* p) {
  __asm__ volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p)));
}

// What was stored at p is loaded from there: a broadcast from memory is free, where the
// compiler would rather shuffle the register that was stored.
template <class T>
inline void keep_in_memory(T* p) {
  __asm__("" : "+m"(*reinterpret_cast<char(*)[64]>(p)));
}

}  // namespace ingot::INGOT_ISA::simd
