// What the IQ1, IQ2 and IQ3 formats share: weights come in runs of 8 (or 4) looked up
// in a grid, with the signs stored apart.
#pragma once

#include "formats/block.h"
#include "formats/grids.h"

namespace ingot::INGOT_ISA {

// A slice from four runs of 8 weights.
template <class Index>
inline simd::U8x32 gather_runs(const uint64_t* grid, Index index) {
  return simd::from_words(grid[index(0)], grid[index(1)], grid[index(2)], grid[index(3)]);
}

// A slice from eight runs of 4 weights.
template <class Index>
inline simd::U8x32 gather_runs(const uint32_t* grid, Index index) {
  const auto pair = [&](int i) {
    return grid[index(2 * i)] | static_cast<uint64_t>(grid[index(2 * i + 1)]) << 32;
  };
  return simd::from_words(pair(0), pair(1), pair(2), pair(3));
}

// 32 sign bits from four 7-bit indices that follow each other in a word: every run of
// 8 has an even number of minus signs, so that the eighth need not be stored.
inline uint32_t signs_of_four(uint32_t indices) {
  return kSigns7[indices & 127] | kSigns7[indices >> 7 & 127] << 8 |
         kSigns7[indices >> 14 & 127] << 16 |
         static_cast<uint32_t>(kSigns7[indices >> 21 & 127]) << 24;
}

}  // namespace ingot::INGOT_ISA
