// What every block format has in common.
//
// A block is a row of weights cut into groups that share a scale:
//
//     w[i] = (d * scale[g]) * q[i] + (m * min[g])          g = i / kGroup
//
// with a small integer q that fits a signed byte, small integers scale[g] and
// min[g], and two floats d and m per block. A format F states its layout and
// answers two questions, in registers:
//
//     F::scales(block)      -> Scales{d, m, scale[], min[]}
//     F::lanes<s>(block)    -> the q of weights 32*s .. 32*s+31, in order
//
// Plain decode, GEMV, GEMM panels and embedding rows are templates over F (see
// kernels/); they may multiply out the float scales, or stay in integers until
// the end of the block. Where a format's own definition has fractions (the
// eighths of IQ1, the half-steps of IQ2), a power of two moves from q or scale
// into d, so that both hold whole numbers; that changes no bit of the product.
//
// This header and all that include it are compiled once per instruction set:
// everything lives in namespace ingot::INGOT_ISA.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "formats/types.h"
#include "simd/simd.h"

namespace ingot::INGOT_ISA {

template <int kGroups, class Scale = int16_t>
struct Scales {
  float d;               // multiplies every scale
  float m;               // multiplies every min; unused when the format has none
  Scale scale[kGroups];  // one per group
  Scale min[kGroups];
};

// The constants of a format; F derives from it and adds scales() and lanes().
template <TensorType kTensorType, int kWeightsPerGroup, bool kMins>
struct BlockFormat {
  static constexpr TensorType kType = kTensorType;
  static constexpr int kWeights = find_type(static_cast<uint32_t>(kType))->block_weights;
  static constexpr int kBytes = find_type(static_cast<uint32_t>(kType))->block_bytes;
  static constexpr int kGroup = kWeightsPerGroup;
  static constexpr int kGroups = kWeights / kGroup;
  static constexpr int kSlices = kWeights / 32;
  static constexpr bool kHasMin = kMins;
  static_assert(kWeights % 32 == 0 && kGroup >= 16 && kWeights % kGroup == 0);
};

// Calls body(std::integral_constant<int, s>) for every slice s: lanes<s> needs its
// number at compile time, because shifts do.
template <class F, class Body>
inline void for_each_slice(Body body) {
  [&]<int... s>(std::integer_sequence<int, s...>) {
    (body(std::integral_constant<int, s>{}), ...);
  }(std::make_integer_sequence<int, F::kSlices>{});
}

template <class T>
inline T load_as(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

inline float load_f16(const uint8_t* bytes) {
  return simd::half_to_float(load_as<uint16_t>(bytes));
}

}  // namespace ingot::INGOT_ISA
