// How large the integers of a matrix product can get, and so how many of them 32 bits can
// add up exactly.
#pragma once

#include <cstdint>
#include <type_traits>

#include "formats/all.h"
#include "kernels/linear_input.h"

namespace ingot::INGOT_ISA {

// The largest |q * scale| a block can hold (|q| alone where the scale stays outside).
// clang-format off
constexpr int max_word(TensorType type) {
  switch (type) {
    case TensorType::Q4_0: return 8;
    case TensorType::Q4_1: return 15;
    case TensorType::Q5_0: return 16;
    case TensorType::Q5_1: return 31;
    case TensorType::Q8_0: return 128;
    case TensorType::Q2_K: return 3 * 15;
    case TensorType::Q3_K: return 4 * 32;
    case TensorType::Q4_K: return 15 * 63;
    case TensorType::Q5_K: return 31 * 63;
    case TensorType::Q6_K: return 32 * 128;
    case TensorType::Q8_K: return 128;
    case TensorType::IQ1_S: return 9 * 15;
    case TensorType::IQ1_M: return 9 * 15;
    case TensorType::IQ2_XXS: return 43 * 31;
    case TensorType::IQ2_XS: return 43 * 31;
    case TensorType::IQ2_S: return 43 * 31;
    case TensorType::IQ3_XXS: return 62 * 31;
    case TensorType::IQ3_S: return 15 * 31;
    case TensorType::IQ4_NL: return 127;
    case TensorType::IQ4_XS: return 127 * 32;
    case TensorType::TQ1_0: return 1;
    case TensorType::TQ2_0: return 2;
    case TensorType::MXFP4: return 12;
    case TensorType::NVFP4: return 12;
    default: return 0;
  }
}
// clang-format on

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
  while (int64_t{max_word(F::kType)} * kPromptAmplitude * interval > INT32_MAX) interval /= 2;
  return interval;
}

template <class F>
constexpr bool is_exact() {
  static_assert(max_word(F::kType) > 0, "say in max_word() how large the format's words get");
  return flush_interval<F>() >= 16 &&
         int64_t{max_word(F::kType)} * kGenerateAmplitude * 32 <= INT32_MAX;
}

}  // namespace ingot::INGOT_ISA
