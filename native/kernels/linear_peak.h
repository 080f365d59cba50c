// The multiply instructions of prompts and nothing else: the ceiling of their kernels.
#pragma once

#include "isa/table.h"
#include "simd/vector.h"
#if defined(__AMX_BF16__)
#include "kernels/linear_tiles.h"
#endif

namespace ingot::INGOT_ISA {

// Multiplies kPeakWords `words` in registers, `rounds` times, and leaves a result in memory;
// returns the number of multiplications and additions. No two products are of the same words, or a
// compiler would make one of them.
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
  static_assert(kSums * 2 * simd::kLanes <= KernelTable::kPeakWords);
  const auto vector = [&](int64_t i) { return simd::load_pairs(words + i * 2 * simd::kLanes); };
  simd::Ints sums[kSums];
  repeat<kSums>([&](auto i) { sums[i] = simd::zero_ints(); });
  for (int64_t round = 0; round < rounds; ++round) {
    const simd::Pairs a = vector(round % 8);
    repeat<kSums>([&](auto i) { sums[i] = simd::dot(sums[i], a, vector(i)); });
  }
  *sum = 0;
  repeat<kSums>([&](auto i) { *sum ^= simd::sum(sums[i]); });
  return rounds * kSums * 2 * 2 * simd::kLanes;
#endif
}

}  // namespace ingot::INGOT_ISA
