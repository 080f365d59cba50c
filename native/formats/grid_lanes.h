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

// Four indices of a grid, 16 bits each: their low bytes, and `bits` higher bits that follow each
// other in `high`.
template <int bits>
inline uint64_t four_indices(uint32_t low, uint32_t high) {
  constexpr uint64_t kHighest = 0x0100010001000100 * ((1 << bits) - 1);
#if defined(__AVX512F__)  // older CPUs of AMD take long for it
  return _pdep_u64(low, 0x00ff00ff00ff00ff) | _pdep_u64(high, kHighest);
#else
  uint64_t lows = (low | static_cast<uint64_t>(low) << 16) & 0x0000ffff0000ffff;
  lows = (lows | lows << 8) & 0x00ff00ff00ff00ff;
  uint64_t highs = 0;
  for (int i = 0; i < 4; ++i) highs |= static_cast<uint64_t>(high) << (8 + i * (16 - bits));
  return lows | (highs & kHighest);
#endif
}

// A slice from four runs of 8 weights, or from eight of 4.
inline simd::U8x32 gather_runs(const uint64_t* grid, uint64_t indices) {
  return gather_runs(grid, [&](int i) { return indices >> (i * 16) & 0xffff; });
}
inline simd::U8x32 gather_runs(const uint32_t* grid, uint64_t first, uint64_t last) {
  return gather_runs(grid, [&](int i) { return (i < 4 ? first : last) >> (i % 4 * 16) & 0xffff; });
}

// The signs of a block, 32 bits a slice.
struct BlockSigns {
  alignas(32) uint32_t of_slice[8];
};

// Adds the eighth sign of every run, whose other seven are in a byte: a run of 8 has an even number
// of minus signs, so that the last one need not be stored.
inline BlockSigns add_eighth_signs(simd::U8x32 sevens) {
  alignas(16) static constexpr uint8_t kOddParity[16] = {
      0, 0x80, 0x80, 0, 0x80, 0, 0, 0x80, 0x80, 0, 0, 0x80, 0, 0x80, 0x80, 0};
  const simd::U8x32 folded = (sevens ^ simd::shift_right<4>(sevens)) & simd::splat(15);
  BlockSigns signs;
  simd::store32(signs.of_slice, sevens | simd::lookup16(simd::load16(kOddParity), folded));
  return signs;
}

}  // namespace ingot::INGOT_ISA
