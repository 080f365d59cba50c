// Plain decode: blocks of any format to float32, bit for bit as the format defines
// it. The first user of the in-register form, and the twin of later kernels.
#pragma once

#include "formats/block.h"

namespace ingot::INGOT_ISA {

template <class F>
void decode_blocks(const uint8_t* blocks, float* out, int64_t count) {
  for (int64_t b = 0; b < count; ++b, blocks += F::kBytes, out += F::kWeights) {
    const auto s = F::scales(blocks);
    for_each_slice<F>([&](auto slice) {
      constexpr int lo = slice * 32 / F::kGroup, hi = (slice * 32 + 16) / F::kGroup;
      const simd::U8x32 q = F::template lanes<slice>(blocks);
      const float scale_lo = s.d * static_cast<float>(s.scale[lo]);
      const float scale_hi = s.d * static_cast<float>(s.scale[hi]);
      if constexpr (F::kHasMin) {
        simd::store_scaled(out + slice * 32, q, scale_lo, scale_hi,
                           s.m * static_cast<float>(s.min[lo]),
                           s.m * static_cast<float>(s.min[hi]));
      } else {
        simd::store_scaled(out + slice * 32, q, scale_lo, scale_hi);
      }
    });
  }
}

}  // namespace ingot::INGOT_ISA
