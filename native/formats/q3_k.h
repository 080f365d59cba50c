// Q3_K: 256 weights in 110 bytes, 3.4375 bits each; 16 groups of 16.
//
//   0..31     hmask   bit s of byte i: the third bit of weight i of slice s
//   32..95    qs      two bits each: byte i of a run of 32 holds weights i, i+32, i+64, i+96
//   96..107   scales  16 of 6 bits: groups 0..7 have their low nibble in the low half of bytes
//                     0..7, groups 8..15 in the high half; the top two bits of group g are at
//                     bit 2*(g/4) of byte 8 + g%4
//   108..109  d       f16
//
//   w = (d * (scale - 32)) * (three bits - 4)
#pragma once

#include "formats/scale_bytes.h"
#include "formats/wide_words.h"

namespace ingot::INGOT_ISA {

struct Q3_K : BlockFormat<Layout{.type = TensorType{11},
                                 .weights = 256,
                                 .bytes = 110,
                                 .group = 16,
                                 .least = -4,
                                 .most = 3,
                                 .max_word = 4 * 32}> {
  static Scales<16> scales(const uint8_t* block) {
    Scales<16> s;
    s.d = load_f16(block + 108);
    const uint8_t* packed = block + 96;
    for (int g = 0; g < 16; ++g) {
      const int low = packed[g % 8] >> (g / 8 * 4) & 15;
      const int high = packed[8 + g % 4] >> (g / 4 * 2) & 3;
      s.scale[g] = static_cast<int16_t>((low | high << 4) - 32);
    }
    return s;
  }

  template <int slice, class Block>
  static auto lanes(Block block) {
    const auto low = simd::shift_right<slice % 4 * 2>(simd::load32(block + 32 + slice / 4 * 32)) &
                     simd::splat(3);
    return (low | simd::move_bit<slice, 2>(simd::load32(block))) - simd::splat(4);
  }

  template <int slice>
  static simd::Words words(const uint8_t* block) {
    const simd::Words low =
        simd::keep(simd::shift_right<slice % 4 * 2>(wide(block + 32 + slice / 4 * 32)), 3);
    return simd::subtract(simd::merge(low, align_bits<slice, 2>(wide(block)), 4), 4);
  }

  // Inlined by force: gcc 12 would call it, which costs a sixth of the speed with one column.
  [[gnu::always_inline]] static ScaleBytes scale_bytes(const uint8_t* block) {
    const uint64_t low = load_as<uint64_t>(block + 96);
    const uint64_t top = load_as<uint32_t>(block + 104);
    // The top bits of four groups at a time, to bits 4 and 5 of their bytes.
    const uint64_t top_lo = (top & 0x03030303) << 4 | (top & 0x0c0c0c0c) << 34;
    const uint64_t top_hi = (top & 0x30303030) | (top & 0xc0c0c0c0) << 30;
    return {load_f16(block + 108),
            0,
            {centre_six_bits((low & kNibbles) | top_lo),
             centre_six_bits((low >> 4 & kNibbles) | top_hi)},
            {}};
  }

  template <int g, class Turned>
  static auto turned_scale(Turned block) {
    const auto low = (block + (96 + g % 8 / 4 * 4)).template field<g % 4 * 8 + g / 8 * 4, 4>();
    return (low | (block + 104).template field<g % 4 * 8 + g / 4 * 2, 2>() << 4) - 32;
  }
  template <class Turned>
  static auto turned_d(Turned block) {
    return (block + 108).half();
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
