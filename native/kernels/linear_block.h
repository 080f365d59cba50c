// How the linear kernels read a row of weights: in stretches of 256 (one InputBlock). A stretch
// is words (16-bit integers) in runs that share a float factor, plus minimums that are multiplied
// by the sums of the inputs:
//
//     row . x  =  sum over runs:    factor[run] * (words . values) * x.scale
//               + sum over groups:  min[group] * x.sum[group]
//
// A format's integer scales are multiplied into the words if the product fits 16 bits, so that
// a K-quant has one run in a stretch; formats of fewer weights have one run per block.
// Inside a run the arithmetic is exact (linear_bounds.h).
#pragma once

#include "isa/table.h"
#include "kernels/linear_bounds.h"
#include "simd/vector.h"

namespace ingot::INGOT_ISA {

// The same column's inputs for the stretch that follows.
template <class Block>
inline const Block* next_stretch(const Block* block, const LinearInput& input) {
  return reinterpret_cast<const Block*>(reinterpret_cast<const uint8_t*>(block) +
                                        input.quantized_stride);
}

// Weights that share a minimum, and so which of an input's sums it meets.
template <class F>
inline constexpr int kMinGroup = F::kGroup > 16 ? 32 : 16;
template <class F>
inline constexpr int kMins = kInputBlock / kMinGroup<F>;

template <class F>
inline const float* sums_for_mins(const InputBlock& input) {
  return kMinGroup<F> == 32 ? input.sum32 : input.sum16;
}

inline simd::U8x16 bytes_of(uint64_t first, uint64_t last) {
  return simd::low_half(simd::from_words(first, last, 0, 0));
}

// What a format reads once for all slices of a block; most read nothing.
struct NoSigns {};
template <class F>
inline auto signs_of(const uint8_t* block) {
  if constexpr (requires { F::signs(block); }) {
    return F::signs(block);
  } else {
    return NoSigns{};
  }
}
template <class F>
using Signs = decltype(signs_of<F>(nullptr));

template <class F, int slice>
inline simd::U8x32 lanes_of(const uint8_t* block, const Signs<F>& signs) {
  if constexpr (requires { F::signs(block); }) {
    return F::template lanes<slice>(block, signs);
  } else {
    return F::template lanes<slice>(block);
  }
}

// The scales of one row's stretch. Arrays are filled up with zeros to whole vectors.
template <class F>
struct Stretch {
  static_assert(is_exact<F>());
  static constexpr int kMinVectors = !F::kHasMin               ? 0
                                     : kMins<F> < simd::kLanes ? 1
                                                               : kMins<F> / simd::kLanes;
  alignas(64) float factor[16];
  simd::GroupScales scales;  // of 256-weight blocks: multiplied into the words
  simd::Floats min[kMinVectors == 0 ? 1 : kMinVectors];
  [[no_unique_address]] Signs<F> signs;
};

// Block by block, through the format's own scales(): any format, any number of blocks.
template <class F>
inline void read_stretch_plainly(const uint8_t* blocks, int count, Stretch<F>& stretch) {
  alignas(64) float min[16] = {};
  const auto read_block = [&](auto b) {
    const auto s = F::scales(blocks + b * F::kBytes);
    if constexpr (kScaledWords<F>) {
      stretch.factor[b] = s.d;
      uint64_t scales[2] = {};
      for (int g = 0; g < F::kGroups; ++g)
        scales[g / 8] |= static_cast<uint64_t>(static_cast<uint8_t>(s.scale[g])) << (g % 8 * 8);
      if constexpr (F::kGroups > 1) simd::set_group_scales(stretch.scales, scales[0], scales[1]);
    } else {
      for (int g = 0; g < F::kGroups; ++g)
        stretch.factor[b * F::kGroups + g] = s.d * static_cast<float>(s.scale[g]);
    }
    if constexpr (F::kHasMin)
      for (int g = 0; g < F::kGroups; ++g)
        min[b * F::kGroups + g] = s.m * static_cast<float>(s.min[g]);
  };
  if (count == kBlocksPerStretch<F>) {
    repeat<kBlocksPerStretch<F>>(read_block);
  } else {
    for (float& factor : stretch.factor) factor = 0;
    for (int b = 0; b < count; ++b) read_block(b);
  }
  for (int v = 0; v < Stretch<F>::kMinVectors; ++v)
    stretch.min[v] = simd::load_floats(min + v * simd::kLanes);
}

// Reads `count` blocks (fewer than kBlocksPerStretch only at the end of a row); what lies
// beyond them contributes nothing.
template <class F>
inline void read_stretch(const uint8_t* blocks, int count, Stretch<F>& stretch) {
  stretch.signs = signs_of<F>(blocks);
  if constexpr (requires { F::scale_bytes(blocks); }) {
    const ScaleBytes s = F::scale_bytes(blocks);
    stretch.factor[0] = s.d;
    simd::set_group_scales(stretch.scales, s.scale[0], s.scale[1]);
    if constexpr (F::kHasMin) {
      const simd::ByteFloats min = simd::signed_floats(bytes_of(s.min[0], s.min[1]));
      repeat<Stretch<F>::kMinVectors>(
          [&](auto v) { stretch.min[v] = simd::multiply(min.v[v], simd::splat_float(s.m)); });
    }
  } else if constexpr (requires { F::block_factors(blocks); }) {
    if (count < kBlocksPerStretch<F>) return read_stretch_plainly<F>(blocks, count, stretch);
    const BlockFactors s = F::block_factors(blocks);
    simd::store(stretch.factor, s.d);
    if constexpr (F::kHasMin) stretch.min[0] = s.m;
  } else if constexpr (requires { F::group_factor(blocks, 0); }) {
    for (float& factor : stretch.factor) factor = 0;
    for (int b = 0; b < count; ++b)
      for (int g = 0; g < F::kGroups; ++g)
        stretch.factor[b * F::kGroups + g] = F::group_factor(blocks + b * F::kBytes, g);
  } else {
    read_stretch_plainly<F>(blocks, count, stretch);
  }
}

// Asks for a stretch that will be read soon.
template <class F>
inline void prefetch_stretch(const uint8_t* blocks) {
  for (int i = 0; i < kBlocksPerStretch<F> * F::kBytes; i += 64) simd::prefetch(blocks + i);
}

// The integers q of slice `slice` of a block.
template <class F, int slice>
inline simd::Words unscaled_words(const uint8_t* block, const Stretch<F>& stretch) {
  if constexpr (requires { F::template words<slice>(block); }) {
    return F::template words<slice>(block);
  } else {
    return simd::widen(lanes_of<F, slice>(block, stretch.signs));
  }
}

// The words of slice `slice` of a block: q * scale, or q alone.
template <class F, int slice>
inline simd::Words read_words(const uint8_t* block, const Stretch<F>& stretch) {
  const simd::Words q = unscaled_words<F, slice>(block, stretch);
  if constexpr (!kScaledWords<F> || F::kGroups == 1) {
    return q;
  } else if constexpr (F::kGroup >= 32) {
    return simd::scale(q, simd::splat_group<slice * 32 / F::kGroup>(stretch.scales));
  } else {
    return simd::scale(q, simd::splat_two_groups<slice * 2>(stretch.scales));
  }
}

}  // namespace ingot::INGOT_ISA
