// What the IQ1, IQ2 and IQ3 formats share: weights come in runs of 8 (or 4) looked up
// in a grid, with the signs stored apart.
#pragma once

#include "formats/block.h"
#include "formats/grids.h"

namespace ingot::INGOT_ISA {

// A slice from four runs of 8 weights.
template <class Index>
inline simd::U8x32 gather_runs(const uint64_t* grid, Index index) {
  return simd::gather_eights(grid + index(0), grid + index(1), grid + index(2), grid + index(3));
}

// A slice from eight runs of 4 weights.
template <class Index>
inline simd::U8x32 gather_runs(const uint32_t* grid, Index index) {
  return simd::gather_fours([&](int i) { return grid + index(i); });
}

// Adds the eighth sign of each of four runs, whose other seven are in a byte: every run of 8 has an
// even number of minus signs, so that the last one need not be stored.
inline uint32_t add_eighth_signs(uint32_t sevens) {
  uint32_t parity = sevens ^ sevens >> 4;  // of each byte, in its lowest bit
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return sevens | (parity & 0x01010101) << 7;
}

// 32 sign bits from four times seven that follow each other in a word.
inline uint32_t signs_of_four(uint32_t packed) {
  const uint32_t halves = (packed & 0x3fff) | (packed & 0x0fffc000) << 2;
  return add_eighth_signs((halves & 0x007f007f) | (halves & 0x3f803f80) << 1);
}

}  // namespace ingot::INGOT_ISA
