// IQ4_NL: 32 weights in 18 bytes, 4.5 bits each, on 16 unevenly spaced levels.
//
//   0..1   d   f16
//   2..17  qs  nibbles: byte i holds weight i (low) and weight i+16 (high)
//
//   w = d * kIq4Levels[nibble]
#pragma once

#include "formats/small_blocks.h"

namespace ingot::INGOT_ISA {

inline constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

struct IQ4_NL
    : BlockFormat<Layout{
          .type = TensorType{20}, .weights = 32, .bytes = 18, .group = 32, .max_word = 127}> {
  static Scales<1> scales(const uint8_t* block) { return {load_f16(block), 0, {1}, {}}; }

  template <int slice, class Block>
  static auto lanes(Block block) {
    return simd::lookup16(simd::load16(kIq4Levels), simd::nibbles(simd::load16(block + 2)));
  }

  static void paired_lanes(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    paired_nibbles<2>(a, b, out);
    for (simd::U8x32& lanes : out) lanes = simd::lookup16(simd::load16(kIq4Levels), lanes);
  }

  static BlockFactors block_factors(const uint8_t* blocks) {
    return halves_of_blocks<IQ4_NL>(blocks);
  }

  template <class Turned>
  static auto turned_d(Turned block) {
    return block.half();
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);
};

}  // namespace ingot::INGOT_ISA
