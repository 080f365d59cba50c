// Q2_0: 64 weights of -1, 0, 1 or 2 in 18 bytes, 2.25 bits each.
//
//   0..1   d   f16
//   2..17  qs  two bits each: byte i holds weights 4*i .. 4*i+3, the first one lowest
//
//   w = d * (two bits - 1)
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

struct Q2_0 : BlockFormat<Layout{.type = TensorType{42},
                                 .weights = 64,
                                 .bytes = 18,
                                 .group = 64,
                                 .least = -1,
                                 .most = 2,
                                 .max_word = 2}> {
  static Scales<1> scales(const uint8_t* block) { return {load_f16(block), 0, {1}, {}}; }

  // Of each byte, which four lanes get, the first two keep a field of the low nibble, the others
  // one of the high nibble. A field is 0 to 3 or four times that; a table knows both.
  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    const simd::U8x32 packed = simd::four_of_each(block + 2 + slice * 8);
    const simd::U8x32 fields =
        (packed & every_four(0x00000c03)) | (simd::shift_right<4>(packed) & every_four(0x0c030000));
    return simd::lookup16(simd::load16(kLevels), fields);
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);

 private:
  static constexpr int8_t kLevels[16] = {-1, 0, 1, 2, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0};

  static simd::U8x32 every_four(uint64_t bytes) {
    const uint64_t word = bytes | bytes << 32;
    return simd::from_words(word, word, word, word);
  }
};

}  // namespace ingot::INGOT_ISA
