// IQ4_NL: 32 weights in 18 bytes, 4.5 bits each, on 16 unevenly spaced levels.
//
//   0..1   d   f16
//   2..17  qs  nibbles: byte i holds weight i (low) and weight i+16 (high)
//
//   w = d * kIq4Levels[nibble]
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

inline constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

struct IQ4_NL : BlockFormat<TensorType::IQ4_NL, 32, false> {
  static Scales<1> scales(const uint8_t* block) { return {load_f16(block), 0, {1}, {}}; }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    return simd::lookup16(simd::load16(kIq4Levels), simd::nibbles(simd::load16(block + 2)));
  }
};

}  // namespace ingot::INGOT_ISA
