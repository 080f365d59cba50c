// IQ4_XS: 256 weights in 136 bytes, 4.25 bits each; 8 groups of 32 on IQ4_NL's levels.
//
//   0..1    d         f16
//   2..3    scales_h  the top two bits of group g's scale at bit 2*g
//   4..7    scales_l  the low nibbles, two groups a byte
//   8..135  qs        16 bytes a group: byte i holds weight i (low) and weight i+16 (high)
//
//   w = (d * (scale - 32)) * kIq4Levels[nibble]
#pragma once

#include "formats/iq4_nl.h"
#include "formats/scale_bytes.h"

namespace ingot::INGOT_ISA {

struct IQ4_XS : BlockFormat<Layout{.type = TensorType{23},
                                   .weights = 256,
                                   .bytes = 136,
                                   .group = 32,
                                   .max_word = 127 * 32}> {
  static Scales<8> scales(const uint8_t* block) {
    Scales<8> s;
    s.d = load_f16(block);
    const uint16_t tops = load_as<uint16_t>(block + 2);
    for (int g = 0; g < 8; ++g) {
      const int low = block[4 + g / 2] >> (g % 2 * 4) & 15;
      s.scale[g] = static_cast<int16_t>((low | (tops >> (g * 2) & 3) << 4) - 32);
    }
    return s;
  }

  template <int slice, class Block>
  static auto lanes(Block block) {
    return simd::lookup16(simd::load16(kIq4Levels),
                          simd::nibbles(simd::load16(block + 8 + slice * 16)));
  }

  static ScaleBytes scale_bytes(const uint8_t* block) {
    const uint64_t tops = spread_fields<2>(load_as<uint16_t>(block + 2)) << 4;
    const uint64_t lows = spread_fields<4>(load_as<uint32_t>(block + 4));
    return {load_f16(block), 0, {centre_six_bits(lows | tops), 0}, {}};
  }

  template <int g, class Turned>
  static auto turned_scale(Turned block) {
    const auto low = (block + 4).template field<g * 4, 4>();
    return (low | block.template field<16 + g * 2, 2>() << 4) - 32;
  }
  template <class Turned>
  static auto turned_d(Turned block) {
    return block.half();
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
