// A block of sixteen rows, turned: line i holds bytes 4 * i to 4 * i + 3 of every row, one row a
// lane. A format's lanes() takes it in place of a block and gives the same weights of all rows:
// its operations work byte by byte, so they do not care which byte is whose.
#pragma once

#include "simd/vector_avx512.h"

namespace ingot::INGOT_ISA::simd {

// Where in a turned block: `offset` counts the bytes of a row and is a multiple of 4.
struct TurnedAt {
  const uint8_t* const* rows;
  const uint8_t* lines;
  int offset;

  TurnedAt operator+(int bytes) const { return {rows, lines, offset + bytes}; }
  __m512i line() const { return _mm512_load_si512(lines + offset / 4 * 64); }
  // Of the line here: bits `first` and up, so many of them; byte k, with its sign; the
  // half-precision number in its low or high half.
  template <int first, int count>
  Ints field() const {
    return ints(
        _mm512_and_si512(_mm512_srli_epi32(line(), first), _mm512_set1_epi32((1 << count) - 1)));
  }
  template <int k>
  Ints byte() const {
    return ints(_mm512_srai_epi32(_mm512_slli_epi32(line(), 24 - 8 * k), 24));
  }
  template <int k>
  Floats half() const {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(line(), 16 * k)));
  }
  // The half-precision number at any offset.
  Floats half_of_rows() const {
    const auto four = [&](int r) {
      const auto bits_of = [&](int i) {
        return static_cast<uint64_t>(load_bits(rows[r + i] + offset)) << (16 * i);
      };
      return static_cast<int64_t>(bits_of(0) | bits_of(1) | bits_of(2) | bits_of(3));
    };
    return _mm512_cvtph_ps(_mm256_setr_epi64x(four(0), four(4), four(8), four(12)));
  }
};

struct HalfQuads {
  Pairs v[4];  // 16 bytes of every row
};
struct Quads {
  Pairs v[8];  // 32 bytes of every row: a slice
};

inline HalfQuads load16(TurnedAt at) {
  const auto line = [&](int i) { return pairs((at + 4 * i).line()); };
  return {{line(0), line(1), line(2), line(3)}};
}
inline Quads load32(TurnedAt at) {
  const HalfQuads low = load16(at), high = load16(at + 16);
  return {{low.v[0], low.v[1], low.v[2], low.v[3], high.v[0], high.v[1], high.v[2], high.v[3]}};
}

inline __m512i widen_splat(U8x32 v) { return _mm512_broadcast_i64x4(v.v); }
template <class Op>
inline Quads each_quad(const Quads& a, Op op) {
  return {{pairs(op(bits(a.v[0]))), pairs(op(bits(a.v[1]))), pairs(op(bits(a.v[2]))),
           pairs(op(bits(a.v[3]))), pairs(op(bits(a.v[4]))), pairs(op(bits(a.v[5]))),
           pairs(op(bits(a.v[6]))), pairs(op(bits(a.v[7])))}};
}
inline Quads operator&(const Quads& a, U8x32 splat) {
  return each_quad(a, [&](__m512i v) { return _mm512_and_si512(v, widen_splat(splat)); });
}
inline Quads operator^(const Quads& a, U8x32 splat) {
  return each_quad(a, [&](__m512i v) { return _mm512_xor_si512(v, widen_splat(splat)); });
}
inline Quads operator-(const Quads& a, U8x32 splat) {
  return each_quad(a, [&](__m512i v) { return _mm512_sub_epi8(v, widen_splat(splat)); });
}
inline Quads operator|(const Quads& a, const Quads& b) {
  const auto either = [&](int i) { return a.v[i] | b.v[i]; };
  return {{either(0), either(1), either(2), either(3), either(4), either(5), either(6), either(7)}};
}
template <int shift>
inline Quads shift_right(const Quads& a) {
  const __m512i mask = _mm512_set1_epi8(static_cast<char>(0xff >> shift));
  return each_quad(a,
                   [&](__m512i v) { return _mm512_and_si512(_mm512_srli_epi16(v, shift), mask); });
}
template <int shift>
inline Quads shift_left(const Quads& a) {
  const __m512i mask = _mm512_set1_epi8(static_cast<char>(0xff << shift));
  return each_quad(a,
                   [&](__m512i v) { return _mm512_and_si512(_mm512_slli_epi16(v, shift), mask); });
}
template <int from, int to>
inline Quads move_bit(const Quads& a) {
  const __m512i mask = _mm512_set1_epi8(static_cast<char>(1 << to));
  return each_quad(a, [&](__m512i v) {
    const __m512i moved =
        from < to ? _mm512_slli_epi16(v, to - from) : _mm512_srli_epi16(v, from - to);
    return _mm512_and_si512(moved, mask);
  });
}
inline Quads nibbles(const HalfQuads& a) {
  const Quads both{
      {a.v[0], a.v[1], a.v[2], a.v[3], a.v[0] >> 4, a.v[1] >> 4, a.v[2] >> 4, a.v[3] >> 4}};
  return both & splat(15);
}
inline Quads lookup16(U8x16 table, const Quads& index) {
  return each_quad(
      index, [&](__m512i v) { return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table.v), v); });
}

// Turns 64 bytes of every row.
inline void turn64(const uint8_t* const* rows, int offset, uint8_t* lines) {
  Pairs v[kLanes];
  for (int r = 0; r < kLanes; ++r) v[r] = pairs(_mm512_loadu_si512(rows[r] + offset));
  transpose(v);
  for (int i = 0; i < kLanes; ++i) _mm512_store_si512(lines + (offset / 4 + i) * 64, bits(v[i]));
}

// Turns 16 bytes of every row.
inline void turn16(const uint8_t* const* rows, int offset, uint8_t* lines) {
  const auto every_fourth = [&](int r) {
    const auto sixteen = [&](int i) { return load16(rows[r + i] + offset).v; };
    __m512i v = _mm512_castsi128_si512(sixteen(0));
    v = _mm512_inserti32x4(v, sixteen(4), 1);
    v = _mm512_inserti32x4(v, sixteen(8), 2);
    return _mm512_inserti32x4(v, sixteen(12), 3);
  };
  const __m512i a = every_fourth(0), b = every_fourth(1), c = every_fourth(2), d = every_fourth(3);
  const __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
  const __m512i ab_high = _mm512_unpackhi_epi32(a, b), cd_high = _mm512_unpackhi_epi32(c, d);
  uint8_t* to = lines + offset / 4 * 64;
  _mm512_store_si512(to, _mm512_unpacklo_epi64(ab, cd));
  _mm512_store_si512(to + 64, _mm512_unpackhi_epi64(ab, cd));
  _mm512_store_si512(to + 128, _mm512_unpacklo_epi64(ab_high, cd_high));
  _mm512_store_si512(to + 192, _mm512_unpackhi_epi64(ab_high, cd_high));
}

}  // namespace ingot::INGOT_ISA::simd
