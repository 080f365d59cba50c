// What turned blocks (turned.h) are made of, for AVX2 and AVX-512.
#pragma once

#if defined(__AVX512F__)
#include "simd/vector_avx512.h"
#else
#include "simd/vector_avx2.h"
#endif
// After them:
#include "simd/fours.h"

namespace ingot::INGOT_ISA::simd {

inline constexpr int kLineBytes = 4 * kLanes;
using Bytes __attribute__((vector_size(4 * kLanes))) = uint8_t;
using UnsignedPairs __attribute__((vector_size(4 * kLanes))) = uint16_t;
using UnsignedInts __attribute__((vector_size(4 * kLanes))) = uint32_t;

inline Bytes as_bytes(UnsignedInts v) { return reinterpret_cast<Bytes>(v); }
inline UnsignedInts as_unsigned(Bytes v) { return reinterpret_cast<UnsignedInts>(v); }
inline Ints as_ints(UnsignedInts v) { return reinterpret_cast<Ints>(v); }
// The 32 bits of every lane that begin at bit `from` (8, 16 or 24) of `low` and end in `high`.
inline UnsignedInts join_words(UnsignedInts low, UnsignedInts high, int from) {
  return low >> from | high << (32 - from);
}
inline Floats as_floats(Ints v) { return reinterpret_cast<Floats>(v); }
inline Floats low_halves(Bytes v) { return halves_in_lanes(as_ints(as_unsigned(v) & 0xffff)); }
inline Floats high_halves(Bytes v) { return halves_in_lanes(as_ints(as_unsigned(v) >> 16)); }
inline Fours fours_of(Bytes v) { return reinterpret_cast<Fours>(v); }

inline Bytes load_line(const uint8_t* line) {
  return *reinterpret_cast<const Bytes*>(__builtin_assume_aligned(line, kLineBytes));
}
inline void store_line(uint8_t* line, Bytes v) {
  *reinterpret_cast<Bytes*>(__builtin_assume_aligned(line, kLineBytes)) = v;
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
// 0xff where a byte has a bit that the byte of `mask` has, which repeats after four; else 0x00.
inline Bytes have_bits(Bytes v, uint32_t mask) {
  return reinterpret_cast<Bytes>(as_bytes(as_unsigned(v) & mask) != 0);
}

}  // namespace ingot::INGOT_ISA::simd
