// How the matrix kernels see a row of weights: as stretches of 256 (one InputBlock), each
// 16-bit integers under float factors, plus minimums that meet the sums of the inputs:
//
//     row . x  =  sum over runs:  factor[run] * (words . values) * x.scale
//               + sum over 16s:   min[group] * x.sum16[group]
//
// A format's integer scales are multiplied into the words wherever the product fits 16 bits,
// so that a K-quant has one run in a stretch; formats of 32 weights have one run a block.
// Inside a run the arithmetic is exact; kMaxWord says why it cannot overflow.
#pragma once

#include <type_traits>

#include "formats/all.h"
#include "kernels/linear_input.h"
#include "simd/vector.h"

namespace ingot::INGOT_ISA {

// The largest |q * scale| a block can hold (|q| alone where the scale stays outside).
template <class F>
inline constexpr int kMaxWord = 0;
template <>
inline constexpr int kMaxWord<Q4_0> = 8;
template <>
inline constexpr int kMaxWord<Q4_1> = 15;
template <>
inline constexpr int kMaxWord<Q5_0> = 16;
template <>
inline constexpr int kMaxWord<Q5_1> = 31;
template <>
inline constexpr int kMaxWord<Q8_0> = 128;
template <>
inline constexpr int kMaxWord<Q2_K> = 3 * 15;
template <>
inline constexpr int kMaxWord<Q3_K> = 4 * 32;
template <>
inline constexpr int kMaxWord<Q4_K> = 15 * 63;
template <>
inline constexpr int kMaxWord<Q5_K> = 31 * 63;
template <>
inline constexpr int kMaxWord<Q6_K> = 32 * 128;
template <>
inline constexpr int kMaxWord<Q8_K> = 128;
template <>
inline constexpr int kMaxWord<IQ1_S> = 9 * 15;
template <>
inline constexpr int kMaxWord<IQ1_M> = 9 * 15;
template <>
inline constexpr int kMaxWord<IQ2_XXS> = 43 * 31;
template <>
inline constexpr int kMaxWord<IQ2_XS> = 43 * 31;
template <>
inline constexpr int kMaxWord<IQ2_S> = 43 * 31;
template <>
inline constexpr int kMaxWord<IQ3_XXS> = 62 * 31;
template <>
inline constexpr int kMaxWord<IQ3_S> = 15 * 31;
template <>
inline constexpr int kMaxWord<IQ4_NL> = 127;
template <>
inline constexpr int kMaxWord<IQ4_XS> = 127 * 32;
template <>
inline constexpr int kMaxWord<TQ1_0> = 1;
template <>
inline constexpr int kMaxWord<TQ2_0> = 2;
template <>
inline constexpr int kMaxWord<MXFP4> = 12;
template <>
inline constexpr int kMaxWord<NVFP4> = 12;

// Scales of more than 16 bits stay outside the words.
template <class F>
inline constexpr bool kScaledWords =
    std::is_same_v<std::remove_cvref_t<decltype(F::scales(nullptr).scale[0])>, int16_t>;
template <class F>
inline constexpr int kBlocksPerStretch = kInputBlock / F::kWeights;
template <class F>
inline constexpr int kRun = kScaledWords<F> ? F::kWeights : F::kGroup;
template <class F>
inline constexpr int kRuns = kInputBlock / kRun<F>;

// Generation sums a run over kLanes lanes, so one lane adds at most 256 / 8 products.
inline constexpr int kGenerateAmplitude = 16383;
// A prompt's lanes are rows: one lane adds them all, until it is flushed into a float.
inline constexpr int kPromptAmplitude = 8191;

// Weights a 32-bit lane can add up before it might overflow: a power of two, at most a run.
template <class F>
constexpr int flush_interval() {
  int interval = kRun<F>;
  while (int64_t{kMaxWord<F>} * kPromptAmplitude * interval > INT32_MAX) interval /= 2;
  return interval;
}

template <class F>
constexpr bool checked =
    kMaxWord<F> > 0 &&
    flush_interval<F>() >= 16 && int64_t{kMaxWord<F>} * kGenerateAmplitude * 32 <= INT32_MAX;

// The scales of one row's stretch.
template <class F>
struct Stretch {
  static_assert(checked<F>);
  float factor[kRuns<F>];
  float min[F::kHasMin ? kInputBlock / 16 : 1];
  int16_t scale[kScaledWords<F> ? F::kGroups : 1];  // of 256-weight blocks: multiplied into words
};

// Reads `count` blocks (fewer than kBlocksPerStretch only at the end of a row); what lies
// beyond them contributes nothing.
template <class F>
inline Stretch<F> read_stretch(const uint8_t* blocks, int count) {
  Stretch<F> stretch{};
  for (int b = 0; b < count; ++b) {
    const auto s = F::scales(blocks + b * F::kBytes);
    if constexpr (kScaledWords<F>) {
      stretch.factor[b] = s.d;
      for (int g = 0; g < F::kGroups; ++g) stretch.scale[g] = s.scale[g];
    } else {
      for (int g = 0; g < F::kGroups; ++g)
        stretch.factor[b * F::kGroups + g] = s.d * static_cast<float>(s.scale[g]);
    }
    if constexpr (F::kHasMin) {
      constexpr int per_block = F::kWeights / 16;
      for (int i = 0; i < per_block; ++i)
        stretch.min[b * per_block + i] = s.m * static_cast<float>(s.min[i * 16 / F::kGroup]);
    }
  }
  return stretch;
}

// The words of slice `slice` of a block.
template <class F, int slice>
inline simd::Words read_words(const uint8_t* block, const Stretch<F>& stretch) {
  const simd::Words q = simd::widen(F::template lanes<slice>(block));
  if constexpr (!kScaledWords<F> || F::kGroups == 1) {
    return q;
  } else if constexpr (F::kGroup >= 32) {
    return simd::scale(q, stretch.scale[slice * 32 / F::kGroup]);
  } else {
    return simd::scale(q, stretch.scale[slice * 2], stretch.scale[slice * 2 + 1]);
  }
}

}  // namespace ingot::INGOT_ISA
