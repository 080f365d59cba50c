// Bounds of the integers in a matrix product: how many products of a word and an input 32 bits can
// add up exactly. A format states its largest word (Layout::max_word).
#pragma once

#include <cstdint>
#include <type_traits>

#include "formats/block.h"
#include "kernels/linear_input.h"

namespace ingot::INGOT_ISA {

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
  while (int64_t{F::kMaxWord} * kPromptAmplitude * interval > INT32_MAX) interval /= 2;
  return interval;
}

template <class F>
constexpr bool is_exact() {
  return flush_interval<F>() >= 16 && int64_t{F::kMaxWord} * kGenerateAmplitude * 32 <= INT32_MAX;
}

}  // namespace ingot::INGOT_ISA
