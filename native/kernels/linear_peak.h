// The multiply instructions of prompts and nothing else: the ceiling of their kernels.
#pragma once

#include "simd/vector.h"
#if defined(__AMX_BF16__)
#include "kernels/linear_tiles.h"
#endif

namespace ingot::INGOT_ISA {

// Multiplies `words`, 32 of them, in registers, `rounds` times, and leaves a sum behind so that
// nothing is left out; returns the number of multiplications and additions.
inline int64_t multiply_in_registers(const int16_t* words, int64_t rounds, int32_t* sum) {
#if defined(__AMX_BF16__)
  configure_tiles();
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  *sum = words[0];
  return rounds * 4 * 2 * kTileSide * kTileSide * kTileStep;
#else
  constexpr int kSums = 12;  // more than the instruction's latency times its rate
  simd::Ints sums[kSums];
  repeat<kSums>([&](auto i) { sums[i] = simd::zero_ints(); });
  const simd::Pairs a = simd::load_pairs(words), b = simd::splat_pair(words);
  for (int64_t round = 0; round < rounds; ++round)
    repeat<kSums>([&](auto i) { sums[i] = simd::dot(sums[i], a, b); });
  *sum = 0;
  repeat<kSums>([&](auto i) { *sum += simd::sum(sums[i]); });
  return rounds * kSums * 2 * 2 * simd::kLanes;
#endif
}

}  // namespace ingot::INGOT_ISA
