// How large the integers of a matrix product can get, and so how many of them 32 bits can
// add up exactly.
#pragma once

#include <cstdint>
#include <type_traits>

#include "formats/all.h"
#include "kernels/linear_input.h"

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
inline constexpr bool kExact =
    kMaxWord<F> > 0 &&
    flush_interval<F>() >= 16 && int64_t{kMaxWord<F>} * kGenerateAmplitude * 32 <= INT32_MAX;

}  // namespace ingot::INGOT_ISA
