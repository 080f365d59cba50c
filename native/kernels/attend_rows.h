// Query rows over one block of the cache: their scores, their running softmax, their mixes of
// values, all in floats.
//
// Lanes are positions of keys, and elements of values. Numbers come from scratch, or as they lie in
// the cache: by the same operations in the same order.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>

#include "formats/plain.h"
#include "kernels/rowwise.h"
#include "kernels/tasks.h"
#include "simd/bfloats16.h"
#include "simd/floats.h"
#include "simd/vector.h"

namespace ingot::INGOT_ISA {

inline constexpr int kBlock = kKvBlockTokens;
static_assert(kBlock == 32, "scores of a block are two vectors");

// Numbers in scratch, and in the cache.
struct DecodedNumbers {
  const float* first;
  F32x16 load(int64_t i) const { return F32x16::load(first + i); }
  float one(int64_t i) const { return first[i]; }
  void prefetch(int64_t) const {}
};
struct CachedHalves {
  const uint8_t* first;
  const uint8_t* next;  // those of the next block; may be null
  F32x16 load(int64_t i) const { return simd::load_halves16(first + 2 * i); }
  float one(int64_t i) const { return simd::half_to_float(load_as<uint16_t>(first + 2 * i)); }
  void prefetch(int64_t i) const {
    if (next) simd::prefetch(next + 2 * i);
  }
};
struct CachedBfloats {
  const uint8_t* first;
  const uint8_t* next;
  F32x16 load(int64_t i) const { return simd::load_bfloat16s16(first + 2 * i); }
  float one(int64_t i) const { return static_cast<float>(load_as<Bfloat16>(first + 2 * i)); }
  void prefetch(int64_t i) const {
    if (next) simd::prefetch(next + 2 * i);
  }
};
struct CachedFloats {
  const uint8_t* first;
  const uint8_t* next;
  F32x16 load(int64_t i) const {
    return F32x16::load(reinterpret_cast<const float*>(first + 4 * i));
  }
  float one(int64_t i) const { return load_as<float>(first + 4 * i); }
  void prefetch(int64_t i) const {
    if (!next) return;
    simd::prefetch(next + 4 * i);
    simd::prefetch(next + 4 * i + 64);
  }
};

// Rows whose scores stay in registers, two vectors of each.
inline constexpr int kGroupOfRows = simd::kLanes == 16 ? 8 : 4;

// Calls body(count) with `count`, from 1 to kMost, as a compile-time constant.
template <int kMost, class Body>
inline void with_count(int count, Body body) {
  if constexpr (kMost > 1)
    if (count < kMost) return with_count<kMost - 1>(count, body);
  body(std::integral_constant<int, kMost>{});
}

// scores[i][position] = query row i . key, for kRows rows. Asks for the next block.
template <int kRows, class Keys, class Values>
INGOT_FLATTEN inline void score_floats(const float* const* query, int64_t size, const Keys& keys,
                                       const Values& values, float (*scores)[kBlock]) {
  F32x16 lo[kRows], hi[kRows];
  repeat<kRows>([&](auto i) { lo[i] = hi[i] = F32x16::splat(0); });
  for (int64_t d = 0; d < size; ++d) {
    const F32x16 key_lo = keys.load(d * kBlock), key_hi = keys.load(d * kBlock + 16);
    keys.prefetch(d * kBlock);
    values.prefetch(d * kBlock);
    repeat<kRows>([&](auto i) {
      const F32x16 q = F32x16::splat(query[i][d]);
      lo[i] = simd::fma(q, key_lo, lo[i]);
      hi[i] = simd::fma(q, key_hi, hi[i]);
    });
  }
  repeat<kRows>([&](auto i) {
    lo[i].store(scores[i]);
    hi[i].store(scores[i] + 16);
  });
}

// The same of some rows of a task.
template <int kRows, class Keys, class Values>
INGOT_FLATTEN inline void score_rows(const AttendTask& task, const int* rows, const Keys& keys,
                                     const Values& values, float (*scores)[kBlock]) {
  const float* query[kRows];
  repeat<kRows>([&](auto i) { query[i] = task.query[rows[i]]; });
  score_floats<kRows>(query, task.head_size, keys, values, scores);
}

// One block's share of a row: what the mix so far is multiplied with, and what each value is.
struct Fold {
  float shrink;
  int first, last;  // positions that the row sees
  uint32_t unseen;  // bits of those in between that it does not see
  // If the task has biases:
  const float* bias;  // of each position; null: none
  float slope;
  float distance;  // of the first position from the query
  alignas(64) float weight[kBlock];
};

alignas(64) inline constexpr float kCounted[kBlock] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                                       11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                                       22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

// What the place of a key adds to 16 scores of a block, from `first` on.
inline F32x16 add_bias(F32x16 scores, const Fold& fold, int first) {
  if (fold.bias) scores = scores + F32x16::load(fold.bias + first);
  if (fold.slope != 0) {
    const F32x16 distance = F32x16::load(kCounted + first) + F32x16::splat(fold.distance);
    const F32x16 length = simd::max(distance, F32x16::splat(0) - distance);
    scores = scores - F32x16::splat(fold.slope) * length;
  }
  return scores;
}

// Gives what a row does not see of a block this value.
inline void cover_unseen(const Fold& fold, float value, float* numbers) {
  for (int position = 0; position < fold.first; ++position) numbers[position] = value;
  for (int position = fold.last; position < kBlock; ++position) numbers[position] = value;
  for (uint32_t left = fold.unseen; left; left &= left - 1) numbers[std::countr_zero(left)] = value;
}

// Folds one block's scores into a row's running softmax.
inline void fold_scores(const AttendTask& task, AttendRow& row, float* scores, Fold& fold) {
  cover_unseen(fold, -INFINITY, scores);
  const F32x16 scale = F32x16::splat(task.scale);
  F32x16 lo = F32x16::load(scores) * scale, hi = F32x16::load(scores + 16) * scale;
  if (task.softcap != 0) {
    const F32x16 cap = F32x16::splat(task.softcap);
    lo = cap * simd::tanh(lo / cap);
    hi = cap * simd::tanh(hi / cap);
    lo.store(scores);
    hi.store(scores + 16);
    cover_unseen(fold, -INFINITY, scores);
    lo = F32x16::load(scores);
    hi = F32x16::load(scores + 16);
  }
  if (task.bias || task.slopes) {
    lo = add_bias(lo, fold, 0);
    hi = add_bias(hi, fold, 16);
  }
  const float best = std::max(row.maximum, simd::maximum(simd::max(lo, hi)));
  const F32x16 top = F32x16::splat(best);
  simd::exp(lo - top).store(fold.weight);
  simd::exp(hi - top).store(fold.weight + 16);
  cover_unseen(fold, 0, fold.weight);
  const float total = simd::sum(F32x16::load(fold.weight) + F32x16::load(fold.weight + 16));
  // 0 for the first block: maximum is -inf.
  fold.shrink = row.maximum == best ? 1.0f : std::exp(row.maximum - best);
  row.maximum = best;
  row.sum = row.sum * fold.shrink + total;
}

// mix = mix * shrink + sum over positions of weight * value, for kRows rows and kParts vectors
// of elements.
template <int kRows, int kParts, class Numbers>
inline void mix_part(float* mix, int64_t d, int64_t size, const Fold* folds, const Numbers& values,
                     int first, int last) {
  F32x16 total[kRows][kParts];
  repeat<kRows>([&](auto r) {
    const F32x16 shrink = F32x16::splat(folds[r].shrink);
    repeat<kParts>(
        [&](auto p) { total[r][p] = F32x16::load(mix + r * size + d + p * 16) * shrink; });
  });
  for (int position = first; position < last; ++position) {
    F32x16 value[kParts];
    repeat<kParts>([&](auto p) { value[p] = values.load(position * size + d + p * 16); });
    repeat<kRows>([&](auto r) {
      const F32x16 weight = F32x16::splat(folds[r].weight[position]);
      repeat<kParts>([&](auto p) { total[r][p] = simd::fma(weight, value[p], total[r][p]); });
    });
  }
  repeat<kRows>([&](auto r) {
    repeat<kParts>([&](auto p) { total[r][p].store(mix + r * size + d + p * 16); });
  });
}

// Elements from `d` on, kParts vectors at a time, then fewer; returns where whole vectors end.
template <int kRows, int kParts, class Numbers>
inline int64_t mix_parts(float* mix, int64_t d, int64_t size, const Fold* folds,
                         const Numbers& values, int first, int last) {
  for (; d + kParts * 16 <= size; d += kParts * 16)
    mix_part<kRows, kParts>(mix, d, size, folds, values, first, last);
  if constexpr (kParts > 1)
    return mix_parts<kRows, kParts / 2>(mix, d, size, folds, values, first, last);
  return d;
}

// Sums that stay in registers, enough of them that none waits for the last.
inline constexpr unsigned kMixSums = simd::kLanes == 16 ? 24 : 4;

// A position that one of the rows does not see has weight 0 there.
template <int kRows, class Numbers>
INGOT_FLATTEN inline void mix_values(float* mix, int64_t size, const Fold* folds,
                                     const Numbers& values) {
  int first = folds[0].first, last = folds[0].last;
  for (int r = 1; r < kRows; ++r) {
    first = std::min(first, folds[r].first);
    last = std::max(last, folds[r].last);
  }
  constexpr int kParts = std::bit_floor(std::clamp(kMixSums / kRows, 1u, 8u));
  int64_t d = mix_parts<kRows, kParts>(mix, 0, size, folds, values, first, last);
  for (; d < size; ++d)
    for (int r = 0; r < kRows; ++r) {
      float total = mix[r * size + d] * folds[r].shrink;
      for (int position = first; position < last; ++position)
        total += folds[r].weight[position] * values.one(position * size + d);
      mix[r * size + d] = total;
    }
}

}  // namespace ingot::INGOT_ISA
