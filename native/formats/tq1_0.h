// TQ1_0: 256 weights of -1, 0 or 1 in 54 bytes, 1.6875 bits each.
//
//   0..31   weights 0..159: byte i holds weights i, i+32, i+64, i+96, i+128
//   32..47  weights 160..239: byte i holds weights i, i+16, i+32, i+48, i+64
//   48..51  weights 240..255: byte i holds weights i, i+4, i+8, i+12
//   52..53  d  f16
//
// A byte is the fraction t1/3 + t2/9 + t3/27 ... in 256ths, rounded up: multiplying by
// three carries the next trit (0, 1, 2) out of its top.
//
//   w = d * (trit - 1)
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

struct TQ1_0
    : BlockFormat<Layout{
          .type = TensorType{34}, .weights = 256, .bytes = 54, .group = 256, .max_word = 1}> {
  static Scales<1> scales(const uint8_t* block) { return {load_f16(block + 52), 0, {1}, {}}; }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    if constexpr (slice < 5) {
      return leading_trit(times_three<slice>(simd::load32(block)));
    } else if constexpr (slice < 7) {
      constexpr int first = (slice - 5) * 2;
      const simd::U8x16 packed = simd::load16(block + 32);
      const simd::U8x32 v = times_three<first>(simd::join(packed, packed));
      return leading_trit(simd::join(simd::low_half(v), simd::high_half(times_three<1>(v))));
    } else {
      const simd::U8x16 packed = simd::load16(block + 32);
      uint8_t tail[16];
      for (int i = 0; i < 16; ++i)
        tail[i] = static_cast<uint8_t>(block[48 + i % 4] * kPower[i / 4]);
      const simd::U8x32 v = times_three<4>(simd::join(packed, packed));
      return leading_trit(simd::join(simd::low_half(v), simd::load16(tail)));
    }
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count);

 private:
  static constexpr uint8_t kPower[4] = {1, 3, 9, 27};

  template <int times>
  static simd::U8x32 times_three(simd::U8x32 v) {
    if constexpr (times > 0) v = times_three<times - 1>(v + v + v);
    return v;
  }

  // floor(3 * v / 256) - 1
  static simd::U8x32 leading_trit(simd::U8x32 v) {
    return simd::splat(0xff) - simd::at_least(v, 86) - simd::at_least(v, 171);
  }
};

}  // namespace ingot::INGOT_ISA
