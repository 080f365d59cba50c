// The integers q of a block as 16-bit words: what F::lanes() says, widened. For the
// common formats the bytes are widened before they are taken apart, which leaves fewer
// instructions (and lets slices that share bytes share the widening).
#pragma once

#include "formats/all.h"
#include "simd/vector.h"

namespace ingot::INGOT_ISA {

inline simd::Words wide(const uint8_t* bytes) { return simd::widen_unsigned(simd::load32(bytes)); }

template <class F, int slice>
struct PlainWords {
  static simd::Words read(const uint8_t* block) {
    return simd::widen(F::template lanes<slice>(block));
  }
};

// The low or the high nibbles.
template <bool high>
inline simd::Words nibble_words(simd::Words packed) {
  if constexpr (high) {
    return simd::shift_right<4>(packed);
  } else {
    return simd::keep(packed, 15);
  }
}

// Bits `bit` and up of v moved to bit `to`, where merge() picks them.
template <int bit, int to>
inline simd::Words align_bits(simd::Words v) {
  if constexpr (bit < to) {
    return simd::shift_left<to - bit>(v);
  } else {
    return simd::shift_right<bit - to>(v);
  }
}

template <int slice>
struct PlainWords<Q4_K, slice> {
  static simd::Words read(const uint8_t* block) {
    return nibble_words < slice % 2 != 0 > (wide(block + 16 + slice / 2 * 32));
  }
};

template <int slice>
struct PlainWords<Q5_K, slice> {
  static simd::Words read(const uint8_t* block) {
    return simd::merge(nibble_words < slice % 2 != 0 > (wide(block + 48 + slice / 2 * 32)),
                       align_bits<slice, 4>(wide(block + 16)), 16);
  }
};

template <int slice>
struct PlainWords<Q6_K, slice> {
  static simd::Words read(const uint8_t* block) {
    constexpr int half = slice / 4, quarter = slice % 4;
    const simd::Words low =
        nibble_words < quarter / 2 != 0 > (wide(block + half * 64 + quarter % 2 * 32));
    const simd::Words high = align_bits<quarter * 2, 4>(wide(block + 128 + half * 32));
    return simd::subtract(simd::merge(low, high, 0x30), 32);
  }
};

template <int slice>
struct PlainWords<Q2_K, slice> {
  static simd::Words read(const uint8_t* block) {
    return simd::keep(simd::shift_right<slice % 4 * 2>(wide(block + 16 + slice / 4 * 32)), 3);
  }
};

template <int slice>
struct PlainWords<Q3_K, slice> {
  static simd::Words read(const uint8_t* block) {
    const simd::Words low =
        simd::keep(simd::shift_right<slice % 4 * 2>(wide(block + 32 + slice / 4 * 32)), 3);
    return simd::subtract(simd::merge(low, align_bits<slice, 2>(wide(block)), 4), 4);
  }
};

template <class F, int slice>
inline simd::Words plain_words(const uint8_t* block) {
  return PlainWords<F, slice>::read(block);
}

// Two blocks of 32 weights, half by half: out[i] holds half i of `a`, then half i of `b`.
template <class F>
struct PairedLanes {
  static void read(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    const simd::U8x32 first = F::template lanes<0>(a), second = F::template lanes<0>(b);
    out[0] = simd::join(simd::low_half(first), simd::low_half(second));
    out[1] = simd::join(simd::high_half(first), simd::high_half(second));
  }
};

// Where nibbles lie in a block as they do in all formats of 32: low ones first.
template <int offset>
inline void paired_nibbles(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
  const simd::U8x32 packed = simd::join(simd::load16(a + offset), simd::load16(b + offset));
  out[0] = packed & simd::splat(15);
  out[1] = simd::shift_right<4>(packed);
}

template <>
struct PairedLanes<Q8_0> {
  static void read(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    out[0] = simd::join(simd::load16(a + 2), simd::load16(b + 2));
    out[1] = simd::join(simd::load16(a + 18), simd::load16(b + 18));
  }
};
template <>
struct PairedLanes<Q4_0> {
  static void read(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    paired_nibbles<2>(a, b, out);
    for (simd::U8x32& lanes : out) lanes = lanes - simd::splat(8);
  }
};
template <>
struct PairedLanes<Q4_1> {
  static void read(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    paired_nibbles<4>(a, b, out);
  }
};
template <>
struct PairedLanes<IQ4_NL> {
  static void read(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    paired_nibbles<2>(a, b, out);
    for (simd::U8x32& lanes : out) lanes = simd::lookup16(simd::load16(kIq4Levels), lanes);
  }
};
template <>
struct PairedLanes<MXFP4> {
  static void read(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    paired_nibbles<1>(a, b, out);
    for (simd::U8x32& lanes : out) lanes = simd::lookup16(simd::load16(kFp4Levels), lanes);
  }
};

// The fifth bits of the first or the last 16 weights of both blocks.
template <int offset>
inline void add_paired_fifth_bits(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
  const uint32_t first = load_as<uint32_t>(a + offset), second = load_as<uint32_t>(b + offset);
  const simd::U8x32 sixteen = simd::splat(16);
  out[0] = out[0] | (simd::spread_bits((first & 0xffff) | second << 16) & sixteen);
  out[1] = out[1] | (simd::spread_bits(first >> 16 | (second & 0xffff0000)) & sixteen);
}
template <>
struct PairedLanes<Q5_0> {
  static void read(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    paired_nibbles<6>(a, b, out);
    add_paired_fifth_bits<2>(a, b, out);
    for (simd::U8x32& lanes : out) lanes = lanes - simd::splat(16);
  }
};
template <>
struct PairedLanes<Q5_1> {
  static void read(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    paired_nibbles<8>(a, b, out);
    add_paired_fifth_bits<4>(a, b, out);
  }
};

}  // namespace ingot::INGOT_ISA
