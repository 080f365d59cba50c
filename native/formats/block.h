// What every block format has in common.
//
// A block is a row of weights cut into groups that share a scale:
//
//     w[i] = (d * scale[g]) * q[i] + (m * min[g])          g = i / kGroup
//
// with a small integer q that fits a signed byte, small integers scale[g] and
// min[g], and two floats d and m per block. A format F derives from BlockFormat, which
// holds its Layout, and answers two questions in registers:
//
//     F::scales(block)      -> Scales{d, m, scale[], min[]}
//     F::lanes<s>(block)    -> the q of weights 32*s .. 32*s+31 (slice s), in order
//
// Decoding, matrix products and embedding rows are templates over F (see kernels/); they may
// multiply out the float scales, or stay in integers until the end of the block. If a
// format's definition has fractions (the eighths of IQ1, the half-steps of IQ2), a power of
// two moves from q or scale into d, so that both hold whole numbers; that changes no bit of the
// product.
//
// That is all a format needs. Members that say the same in fewer instructions are optional, and
// templates find them by `requires`. Matrix products read weights as words (16-bit integers),
// 256 at a time; formats that people run have them:
//
//     F::words<s>(block)           lanes<s>(block) as words
//     F::signs(block)              what all slices share, for lanes<s>(block, signs)
//     F::scale_bytes(block)        blocks of 256: scales and mins as bytes
//     F::block_factors(blocks)     blocks of 32: d and m of eight blocks in a row, as vectors
//     F::paired_lanes(a, b, out)   blocks of 32: the lanes of two blocks, half by half
//     F::group_factor(block, g)    d * scale[g], for scales that do not fit 16 bits
//
// On CPUs that turn blocks (simd/turned.h), lanes() may take a turned block, too. A format
// whose lanes() is made of byte-wise operations says so by these, of all rows of a turned block:
//
//     F::turned_scale<g>(block)  F::turned_min<g>(block)      integers
//     F::turned_d(block)         F::turned_m(block)           floats
//
// A format that can be written has one more (kernels/encode.h):
//
//     F::encode(weights, blocks, count)
//
// This header and all that include it are compiled once per instruction set:
// everything lives in namespace ingot::INGOT_ISA.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "formats/types.h"
#include "simd/vector.h"

namespace ingot::INGOT_ISA {

template <int kGroups, class Scale = int16_t>
struct Scales {
  float d;               // multiplies every scale
  float m;               // multiplies every min; unused when the format has none
  Scale scale[kGroups];  // one per group
  Scale min[kGroups];
};

// scale_bytes(): scale and min as signed bytes, the first group's lowest.
struct ScaleBytes {
  float d;
  float m;
  uint64_t scale[2];
  uint64_t min[2];
};

// block_factors(): of eight blocks, in the first lanes.
struct BlockFactors {
  simd::Floats d, m;
};

// The constants of a format.
struct Layout {
  TensorType type;  // the number that files store
  int weights;      // per block
  int bytes;        // per block
  int group;        // weights that share a scale
  bool has_min = false;
  int least = -128, most = 127;  // the bounds of q
  // The largest |q * scale| (|q| if scales do not fit 16 bits): it says how many products 32 bits
  // can add up (kernels/linear_bounds.h).
  int max_word;
};

template <Layout kLayout>
struct BlockFormat {
  static constexpr TensorType kType = kLayout.type;
  static constexpr int kWeights = kLayout.weights;
  static constexpr int kBytes = kLayout.bytes;
  static constexpr int kGroup = kLayout.group;
  static constexpr int kGroups = kWeights / kGroup;
  static constexpr int kSlices = kWeights / 32;
  static constexpr bool kHasMin = kLayout.has_min;
  static constexpr int kLeast = kLayout.least, kMost = kLayout.most;
  static constexpr int kMaxWord = kLayout.max_word;
  static_assert(kWeights % 32 == 0 && kGroup >= 16 && kWeights % kGroup == 0 && kMaxWord > 0);
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
