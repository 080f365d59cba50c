// What turned blocks (turned.h) are made of, for NEON: a line is as large as a slice.
#pragma once

#include "simd/vector_neon.h"

namespace ingot::INGOT_ISA::simd {

inline constexpr int kLineBytes = 4 * kLanes;
using Bytes = U8x32;
struct UnsignedInts {
  uint32x4_t lo, hi;
};

// Lane by lane, and with the same number in every lane.
#define INGOT_LANEWISE(Vector, Lane, op)                                                 \
  inline Vector operator op(Vector a, Vector b) { return {a.lo op b.lo, a.hi op b.hi}; } \
  inline Vector operator op(Vector a, Lane b) { return {a.lo op b, a.hi op b}; }         \
  inline Vector operator op(Lane a, Vector b) { return {a op b.lo, a op b.hi}; }
INGOT_LANEWISE(UnsignedInts, uint32_t, &)
INGOT_LANEWISE(UnsignedInts, uint32_t, |)
INGOT_LANEWISE(Ints, int32_t, &)
INGOT_LANEWISE(Ints, int32_t, |)
INGOT_LANEWISE(Ints, int32_t, -)
INGOT_LANEWISE(Ints, int32_t, <)
INGOT_LANEWISE(Ints, int32_t, <<)
INGOT_LANEWISE(Ints, int32_t, >>)
#undef INGOT_LANEWISE
inline UnsignedInts operator<<(UnsignedInts a, int n) { return {a.lo << n, a.hi << n}; }
inline UnsignedInts operator>>(UnsignedInts a, int n) { return {a.lo >> n, a.hi >> n}; }
inline Ints operator~(Ints a) { return {~a.lo, ~a.hi}; }

// The 32 bits of every lane that begin at bit `from` (8, 16 or 24) of `low` and end in `high`: a
// shift and one that inserts, which takes its number from the instruction.
inline UnsignedInts join_words(UnsignedInts low, UnsignedInts high, int from) {
  const UnsignedInts upper = high << (32 - from);
  switch (from) {
    case 8:
      return {vsriq_n_u32(upper.lo, low.lo, 8), vsriq_n_u32(upper.hi, low.hi, 8)};
    case 16:
      return {vsriq_n_u32(upper.lo, low.lo, 16), vsriq_n_u32(upper.hi, low.hi, 16)};
    default:
      return {vsriq_n_u32(upper.lo, low.lo, 24), vsriq_n_u32(upper.hi, low.hi, 24)};
  }
}

inline Bytes as_bytes(UnsignedInts v) {
  return {vreinterpretq_u8_u32(v.lo), vreinterpretq_u8_u32(v.hi)};
}
inline UnsignedInts as_unsigned(Bytes v) {
  return {vreinterpretq_u32_u8(v.lo), vreinterpretq_u32_u8(v.hi)};
}
inline Ints as_ints(UnsignedInts v) {
  return {vreinterpretq_s32_u32(v.lo), vreinterpretq_s32_u32(v.hi)};
}
inline Floats as_floats(Ints v) {
  return {vreinterpretq_f32_s32(v.lo), vreinterpretq_f32_s32(v.hi)};
}
inline Fours fours_of(Bytes v) { return v; }

inline Bytes load_line(const uint8_t* line) { return load32(line); }
inline void store_line(uint8_t* line, Bytes v) { store32(line, v); }
inline Bytes operator&(Bytes v, uint8_t mask) { return v & splat(mask); }

// 0xff where a byte has a bit that the byte of `mask` has, which repeats after four; else 0x00.
inline Bytes have_bits(Bytes v, uint32_t mask) {
  const uint8x16_t wanted = vreinterpretq_u8_u32(vdupq_n_u32(mask));
  return {vtstq_u8(v.lo, wanted), vtstq_u8(v.hi, wanted)};
}
template <class>
inline Bytes widen_splat(U8x32 v) {
  return v;
}
inline Bytes lookup_bytes(U8x16 table, Bytes index) { return lookup16(table, index); }
// Byte i of every 16 is byte control[i] of the same 16.
inline Bytes permute_sixteens(Bytes v, U8x16 control) {
  return {vqtbl1q_u8(v.lo, control.v), vqtbl1q_u8(v.hi, control.v)};
}
// The half floats in the low or the high 16 bits of every lane.
inline Floats low_halves(Bytes v) {
  return floats_of_halves(vuzp1q_u16(vreinterpretq_u16_u8(v.lo), vreinterpretq_u16_u8(v.hi)));
}
inline Floats high_halves(Bytes v) {
  return floats_of_halves(vuzp2q_u16(vreinterpretq_u16_u8(v.lo), vreinterpretq_u16_u8(v.hi)));
}

template <class>
inline Bytes load_every_fourth(const uint8_t* const* rows, int offset) {
  return join(load16(rows[0] + offset), load16(rows[4] + offset));
}
inline void transpose_quarters(Bytes (&v)[4]) {
  UnsignedInts row[4];
  for (int i = 0; i < 4; ++i) row[i] = as_unsigned(v[i]);
  transpose_four(row[0].lo, row[1].lo, row[2].lo, row[3].lo);
  transpose_four(row[0].hi, row[1].hi, row[2].hi, row[3].hi);
  for (int i = 0; i < 4; ++i) v[i] = as_bytes(row[i]);
}

}  // namespace ingot::INGOT_ISA::simd
