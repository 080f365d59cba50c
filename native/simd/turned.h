// A block of kLanes rows, turned: line i holds bytes 4 * i to 4 * i + 3 of every row, one row a
// lane. A format's lanes() takes it in place of a block and gives the same weights of all rows: its
// operations work byte by byte, so they do not care which byte is whose.
#pragma once

#if defined(INGOT_NEON)
#include "simd/turned_neon.h"
#else
#include "simd/turned_x86.h"
#endif

namespace ingot::INGOT_ISA::simd {

// Where in a turned block: `offset` counts the bytes of a row. Blocks that begin within a word may
// lie in two places (kernels/byte_strip.h): their first `heads` bytes at `head`, the rest at
// `body`.
struct TurnedAt {
  const uint8_t* lines;
  int body;
  int head = 0, heads = 0;
  int offset = 0;

  TurnedAt operator+(int bytes) const { return {lines, body, head, heads, offset + bytes}; }
  // Four bytes of every row.
  Bytes line() const {
    const uint8_t* here = lines + place() / 4 * kLineBytes;
    const int before = place() % 4 * 8;
    if (before == 0) return load_line(here);
    return as_bytes(join_words(as_unsigned(load_line(here)),
                               as_unsigned(load_line(here + kLineBytes)), before));
  }
  // `count` bits from here on, as far as they lie within one whole line.
  template <int count>
  Ints bits() const {
    const UnsignedInts whole = as_unsigned(load_line(lines + place() / 4 * kLineBytes));
    return as_ints(whole >> (place() % 4 * 8) & ((1u << count) - 1));
  }
  // At an even offset.
  Floats half() const {
    const Bytes whole = load_line(lines + place() / 4 * kLineBytes);
    return place() % 4 == 0 ? low_halves(whole) : high_halves(whole);
  }
  // Floats that have these bits.
  static Floats floats(Ints bits) { return as_floats(bits); }
  // Of the line here: bits `first` and up, so many of them; byte k, with its sign.
  template <int first, int count>
  Ints field() const {
    return as_ints(as_unsigned(line()) >> first & ((1u << count) - 1));
  }
  template <int k>
  Ints byte() const {
    return as_ints(as_unsigned(line())) << (24 - 8 * k) >> 24;
  }

 private:
  int place() const { return offset < heads ? head + offset : body + offset - heads; }
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
// Byte k of every lane, four times.
inline constexpr uint8_t kRepeatByte[4][16] = {
    {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12},
    {1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9, 13, 13, 13, 13},
    {2, 2, 2, 2, 6, 6, 6, 6, 10, 10, 10, 10, 14, 14, 14, 14},
    {3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11, 15, 15, 15, 15}};
// Bit i of the 32 here -> byte i of the slice, 0x00 or 0xff.
inline Quads spread_bits(TurnedAt at) {
  const Bytes bits = at.line();
  return each_quad([&](int i) {
    const Bytes all = permute_sixteens(bits, load16(kRepeatByte[i / 2]));
    return have_bits(all, i % 2 == 0 ? 0x08040201u : 0x80402010u);
  });
}
inline Quads lookup16(U8x16 table, const Quads& index) {
  return each_quad([&](int i) { return lookup_bytes(table, index.v[i]); });
}

// Turns kLineBytes bytes of every row.
inline void turn_lines(const uint8_t* const* rows, int offset, uint8_t* lines) {
  Fours v[kLanes];
  for (int r = 0; r < kLanes; ++r) v[r] = load_fours(rows[r] + offset);
  transpose(v);
  for (int i = 0; i < kLanes; ++i) store_fours(lines + (offset / 4 + i) * kLineBytes, v[i]);
}

// Turns 16 bytes of every row.
inline void turn16(const uint8_t* const* rows, int offset, uint8_t* lines) {
  Bytes v[4];
  for (int i = 0; i < 4; ++i) v[i] = load_every_fourth<Bytes>(rows + i, offset);
  transpose_quarters(v);
  for (int i = 0; i < 4; ++i) store_line(lines + (offset / 4 + i) * kLineBytes, v[i]);
}

// Turns 2 bytes of every row: half a line, then zeros.
inline void turn2(const uint8_t* const* rows, int offset, uint8_t* lines) {
  int32_t halves[kLanes];
  for (int r = 0; r < kLanes; ++r) halves[r] = load_bits(rows[r] + offset);
  __builtin_memcpy(lines + offset / 4 * kLineBytes, halves, sizeof(halves));
}

}  // namespace ingot::INGOT_ISA::simd
