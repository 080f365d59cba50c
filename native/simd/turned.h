// A block of kLanes rows, turned: line i holds bytes 4 * i to 4 * i + 3 of every row, one row a
// lane. A format's lanes() takes it in place of a block and gives the same weights of all rows: its
// operations work byte by byte, so they do not care which byte is whose.
#pragma once

#if defined(__AVX512F__)
#include "simd/vector_avx512.h"
#else
#include "simd/vector_avx2.h"
#endif

namespace ingot::INGOT_ISA::simd {

inline constexpr int kLineBytes = 4 * kLanes;
using Bytes __attribute__((vector_size(4 * kLanes))) = uint8_t;
using UnsignedPairs __attribute__((vector_size(4 * kLanes))) = uint16_t;
using UnsignedInts __attribute__((vector_size(4 * kLanes))) = uint32_t;

inline Bytes load_line(const uint8_t* line) {
  return *reinterpret_cast<const Bytes*>(__builtin_assume_aligned(line, kLineBytes));
}
inline void store_line(uint8_t* line, Bytes v) {
  *reinterpret_cast<Bytes*>(__builtin_assume_aligned(line, kLineBytes)) = v;
}

// Where in a turned block: `offset` counts the bytes of a row and is a multiple of 4.
struct TurnedAt {
  const uint8_t* const* rows;
  const uint8_t* lines;
  int offset;

  TurnedAt operator+(int bytes) const { return {rows, lines, offset + bytes}; }
  Bytes line() const { return load_line(lines + offset / 4 * kLineBytes); }
  // Of the line here: bits `first` and up, so many of them; byte k, with its sign; the
  // half-precision number in its low (k is 0) or high half.
  template <int first, int count>
  Ints field() const {
    return reinterpret_cast<Ints>(reinterpret_cast<UnsignedInts>(line()) >> first &
                                  ((1u << count) - 1));
  }
  template <int k>
  Ints byte() const {
    return reinterpret_cast<Ints>(line()) << (24 - 8 * k) >> 24;
  }
  template <int k>
  Floats half() const {
    return halves_in_lanes(field<16 * k, 16>());
  }
  // The half-precision number at any offset.
  Floats half_of_rows() const {
    int32_t halves[kLanes];
    for (int r = 0; r < kLanes; ++r) halves[r] = load_bits(rows[r] + offset);
    Ints v;
    __builtin_memcpy(&v, halves, sizeof(v));
    return halves_in_lanes(v);
  }
};

struct HalfQuads {
  Bytes v[4];  // 16 bytes of every row
};
struct Quads {
  Bytes v[8];  // 32 bytes of every row: a slice
};

template <class Op>
inline Quads each_quad(Op op) {
  return {{op(0), op(1), op(2), op(3), op(4), op(5), op(6), op(7)}};
}
inline HalfQuads load16(TurnedAt at) {
  return {{at.line(), (at + 4).line(), (at + 8).line(), (at + 12).line()}};
}
inline Quads load32(TurnedAt at) {
  return each_quad([&](int i) { return (at + 4 * i).line(); });
}
inline Quads operator&(const Quads& a, U8x32 splat) {
  return each_quad([&](int i) { return a.v[i] & widen_splat<Bytes>(splat); });
}
inline Quads operator+(const Quads& a, U8x32 splat) {
  return each_quad([&](int i) { return a.v[i] + widen_splat<Bytes>(splat); });
}
inline Quads operator-(const Quads& a, U8x32 splat) {
  return each_quad([&](int i) { return a.v[i] - widen_splat<Bytes>(splat); });
}
inline Quads operator|(const Quads& a, const Quads& b) {
  return each_quad([&](int i) { return a.v[i] | b.v[i]; });
}
template <int shift>
inline Bytes shift_right(Bytes v) {
  return reinterpret_cast<Bytes>(reinterpret_cast<UnsignedPairs>(v) >> shift) &
         static_cast<uint8_t>(0xff >> shift);
}
template <int shift>
inline Bytes shift_left(Bytes v) {
  return reinterpret_cast<Bytes>(reinterpret_cast<UnsignedPairs>(v) << shift) &
         static_cast<uint8_t>(0xff << shift);
}
template <int shift>
inline Quads shift_right(const Quads& a) {
  return each_quad([&](int i) { return shift_right<shift>(a.v[i]); });
}
template <int shift>
inline Quads shift_left(const Quads& a) {
  return each_quad([&](int i) { return shift_left<shift>(a.v[i]); });
}
template <int from, int to>
inline Quads move_bit(const Quads& a) {
  return each_quad([&](int i) {
    if constexpr (from < to) {
      return shift_left<to - from>(a.v[i]) & static_cast<uint8_t>(1 << to);
    } else {
      return shift_right<from - to>(a.v[i]) & static_cast<uint8_t>(1 << to);
    }
  });
}
inline Quads nibbles(const HalfQuads& a) {
  return each_quad([&](int i) {
    return i < 4 ? a.v[i] & static_cast<uint8_t>(15) : shift_right<4>(a.v[i - 4]);
  });
}
inline Quads lookup16(U8x16 table, const Quads& index) {
  return each_quad([&](int i) { return lookup_bytes(table, index.v[i]); });
}

// Turns kLineBytes bytes of every row.
inline void turn_lines(const uint8_t* const* rows, int offset, uint8_t* lines) {
  Pairs v[kLanes];
  for (int r = 0; r < kLanes; ++r)
    v[r] = load_pairs(reinterpret_cast<const int16_t*>(rows[r] + offset));
  transpose(v);
  for (int i = 0; i < kLanes; ++i)
    store_line(lines + (offset / 4 + i) * kLineBytes, reinterpret_cast<Bytes>(v[i]));
}

// Turns 16 bytes of every row.
inline void turn16(const uint8_t* const* rows, int offset, uint8_t* lines) {
  Bytes v[4];
  for (int i = 0; i < 4; ++i) v[i] = load_every_fourth<Bytes>(rows + i, offset);
  transpose_quarters(v);
  for (int i = 0; i < 4; ++i) store_line(lines + (offset / 4 + i) * kLineBytes, v[i]);
}

}  // namespace ingot::INGOT_ISA::simd
