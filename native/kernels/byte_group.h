// A group of byte products: weights that share a factor, and the inputs that they meet.
#pragma once

#include "kernels/byte_strip.h"

namespace ingot::INGOT_ISA {

// What a tile needs from a format; not the format itself, so that formats share the code.
struct ByteShape {
  int group;  // weights that share a factor
  bool has_min;
  bool has_offset;
  int most;      // of the weights; those who add in 16 bits want to know
  bool seconds;  // whether the second bytes of the inputs count
};
template <class F>
inline constexpr ByteShape kByteShape{kByteFactorGroup<F>, F::kHasMin, kByteOffset<F> != 0,
                                      simd::kMostByte == 255 ? 255 : kByteMost<F>,
                                      F::kWeights < kInputBlock};

// Groups whose sums meet the scale of their inputs together: two of 16 weights have one scale. That
// takes 3 multiplications instead of 4, and registers that only AVX-512 has.
#if defined(__AVX512VNNI__)
template <ByteShape shape>
inline constexpr int kTogether = kByteGroup / shape.group;
#else
template <ByteShape>
inline constexpr int kTogether = 1;
#endif

// Whether the products of a format's weights fit the instructions.
template <class F>
inline constexpr bool kMultipliesBytes =
    (F::kWeights == kInputBlock || kTurns<F>) &&
    (simd::kTakesNegativeBytes || kByteMost<F> <= simd::kMostByte);

// The inputs of a group.
struct ByteGroup {
  const int8_t* values;
  float scale;
  float sum;      // scale * the sum of the values
  int32_t total;  // the sum of the values

  template <int i>
  auto quad() const {
    return simd::splat_four<i>(values);
  }
};
template <ByteShape shape>
inline ByteGroup group_of(const ByteBlock& input, int g) {
  return {input.values + g * shape.group, input.scale[g * shape.group / kByteGroup],
          shape.group == 32 ? input.sum32[g] : input.sum16[g],
          shape.group == 32 ? input.total32[g] : input.total16[g]};
}
inline ByteGroup second_group(const SecondBytes& bytes) {
  return {bytes.values, bytes.scale, bytes.scale * static_cast<float>(bytes.total), bytes.total};
}

}  // namespace ingot::INGOT_ISA
