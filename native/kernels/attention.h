// Attention of a few query rows over the paged cache of one key head, in one pass.
//
// The cache is walked block by block. A block's keys and values are used by all rows of the task:
// the heads that share the key head, of one token (generation) or of a tile of tokens (prompt).
// Many rows share what is decoded to float32 in scratch; a few read floats as they lie in the cache
// (kernels/attend_rows.h). Types made of blocks are multiplied as integers
// (kernels/attend_turned.h). Each row keeps a running maximum, a running sum and a running mix
// (online softmax). A row's arithmetic depends only on its query and the blocks it sees, never on
// the other rows.
//
// Inside a block, keys of float types are stored transposed ([element][position]) so that lanes
// are positions; values are stored row by row. kernels/turned_cache.h says where those of types
// made of blocks lie. A layer of latents keeps keys only: values are their last elements.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/attend_rows.h"
#include "kernels/attend_turned.h"

namespace ingot::INGOT_ISA {

inline void decode_floats(TensorType type, const uint8_t* from, int64_t count, float* out) {
  switch (type) {
    case TensorType::F32:
      return decode_plain<float>(from, out, count);
    case TensorType::BF16:
      return decode_plain<Bfloat16>(from, out, count);
    default:
      for (int64_t i = 0; i < count; i += 16) simd::load_halves16(from + 2 * i).store(out + i);
  }
}

// keys[element][position] of the block
inline void decode_keys(TensorType type, int64_t head_size, const uint8_t* from, float* keys) {
  if (type == TensorType::Q8_0) return decode_turned<Q8_0>(from, head_size, keys);
  if (type == TensorType::Q4_0) return decode_turned<Q4_0>(from, head_size, keys);
  decode_floats(type, from, kBlock * head_size, keys);
}

// values[position][element] of the block, if they are the last elements of its keys.
inline void values_of_keys(const AttendTask& task, const float* keys, float* values) {
  const int64_t size = task.value_size, first = task.head_size - size;
  for (int64_t d = 0; d < size; d += 16)
    for (int position = 0; position < kBlock; ++position)
      for (int64_t i = d; i < std::min(size, d + 16); ++i)
        values[position * size + i] = keys[(first + i) * kBlock + position];
}

// Finds what is added to a head's scores of a block that begins so far from the query.
inline void place_bias(const AttendTask& task, int head, int64_t distance, Fold& fold) {
  const int64_t span = task.reach + kBlock;
  fold.bias = task.bias
                  ? task.bias + 2 * span * head + span + std::clamp(distance, -span, task.reach)
                  : nullptr;
  fold.slope = task.slopes ? task.slopes[head] : 0;
  fold.distance = static_cast<float>(distance);
}

// Bits of the positions of the block at `start` that a token has chosen.
inline uint32_t chosen_bits(const float* chosen, int64_t choices, int64_t start) {
  if (chosen[choices - 1] < 0) return ~0u;
  uint32_t bits = 0;
  const float first = static_cast<float>(start), end = static_cast<float>(start + kBlock);
  const float* next = std::lower_bound(chosen, chosen + choices, first);
  for (; next < chosen + choices && *next < end; ++next)
    bits |= 1u << static_cast<int>(*next - first);
  return bits;
}

// Whether a token sees something of the block at `start`, as far as positions are chosen.
inline bool find_chosen(const AttendTask& task, int64_t start) {
  uint32_t any = 0;
  for (int t = 0; t < task.tokens; ++t)
    any |= task.masks[t] = chosen_bits(task.chosen[t], task.choices, start);
  return any;
}

// The positions of the block at `start` that a row sees; none: first >= last.
inline void find_seen(const AttendTask& task, int row, int64_t start, Fold& fold) {
  const int64_t position = task.positions[row / task.repeat];
  const bool around = !task.causal && task.window > 0;
  const int64_t oldest =
      around ? position - task.window / 2 : oldest_seen(position, task.window, task.chunked);
  const int64_t newest = task.causal ? position : around ? position + task.window / 2 : task.end;
  const int64_t seen = std::min(newest + 1, task.end) - start;
  fold.first =
      static_cast<int>(std::clamp<int64_t>(std::max(oldest, task.oldest) - start, 0, kBlock));
  fold.last = static_cast<int>(std::clamp<int64_t>(seen, 0, kBlock));
  fold.unseen = 0;
  if (!task.chosen || fold.first >= fold.last) return;
  const uint32_t span = (~0u << fold.first) & (~0u >> (kBlock - fold.last));
  const uint32_t mask = task.masks[row / task.repeat] & span;
  fold.first = mask ? std::countr_zero(mask) : kBlock;
  fold.last = kBlock - std::countl_zero(mask);
  if (mask) fold.unseen = ~mask & (~0u << fold.first) & (~0u >> (kBlock - fold.last));
}

// All rows of a task over the block at `start`.
template <class Keys, class Values>
inline void attend_block(const AttendTask& task, int64_t start, const Keys& keys,
                         const Values& values) {
  const int rows = task.tokens * task.repeat;
  for (int i = 0; i < rows;) {
    // Some rows that see something of the block.
    int seeing[kGroupOfRows], count = 0;
    Fold folds[kGroupOfRows];
    for (; i < rows && count < kGroupOfRows; ++i) {
      find_seen(task, i, start, folds[count]);
      if (folds[count].first >= folds[count].last) continue;
      if (task.bias || task.slopes) {
        const int64_t position = task.positions[i / task.repeat];
        place_bias(task, i % task.repeat, start - position, folds[count]);
      }
      seeing[count++] = i;
    }
    if (count == 0) break;
    alignas(64) float scores[kGroupOfRows][kBlock];
    with_count<kGroupOfRows>(count,
                             [&](auto n) { score_rows<n>(task, seeing, keys, values, scores); });
    for (int j = 0; j < count; ++j) fold_scores(task, task.row[seeing[j]], scores[j], folds[j]);
    for (int j = 0, run; j < count; j += run) {  // rows next to each other
      for (run = 1; j + run < count && seeing[j + run] == seeing[j] + run;) ++run;
      with_count<kGroupOfRows>(run, [&](auto n) {
        mix_values<n>(task.mix + seeing[j] * task.value_size, task.value_size, folds + j, values);
      });
    }
  }
}

// Calls attend_to(Keys, Values) for each block: keys and values where the cache has them.
template <class Attend>
inline void each_block(const AttendTask& task, Attend attend_to) {
  const auto block_at = [&](int64_t start) {
    return start < task.end ? task.pool + task.table[start / kBlock] * task.block_bytes : nullptr;
  };
  for (int64_t start = task.begin; start < task.end; start += kBlock) {
    if (task.chosen && !find_chosen(task, start)) continue;
    attend_to(start, block_at(start), block_at(start + kBlock));
  }
}

// Up to so many rows read the cache where it lies, with the next block on its way: beyond, numbers
// are better decoded once for all of them.
inline constexpr int kMostInPlace = 16;

// Few rows over floats as they lie in the cache.
template <class Numbers>
inline void attend_cached(const AttendTask& task) {
  each_block(task, [&](int64_t start, const uint8_t* block, const uint8_t* next) {
    const auto numbers = [&](int64_t offset) {
      return Numbers{block + offset, next ? next + offset : nullptr};
    };
    attend_block(task, start, numbers(task.key_offset), numbers(task.value_offset));
  });
}

// Any number of rows over floats in scratch.
inline void attend_decoded(const AttendTask& task) {
  float* keys = task.scratch;                      // [head_size][kBlock]
  float* values = keys + task.head_size * kBlock;  // [kBlock][value_size]
  each_block(task, [&](int64_t start, const uint8_t* block, const uint8_t*) {
    decode_keys(task.type, task.head_size, block + task.key_offset, keys);
    if (task.value_in_key)
      values_of_keys(task, keys, values);
    else
      decode_floats(task.type, block + task.value_offset, kBlock * task.value_size, values);
    attend_block(task, start, DecodedNumbers{keys}, DecodedNumbers{values});
  });
}

// Any number of rows over integers as they lie in the cache.
template <class F>
inline void attend_turned(const AttendTask& task) {
  const int rows = task.tokens * task.repeat;
  const QueryWords queries(task.scratch, rows, task.head_size);
  for (int i = 0; i < rows; ++i) round_query(task.query[i], queries, i);
  each_block(task, [&](int64_t start, const uint8_t* block, const uint8_t* next) {
    if (rows > kMostInPlace) next = nullptr;  // they take longer than it does
    const auto after = [&](int64_t offset) { return next ? next + offset : nullptr; };
    attend_block(task, start,
                 TurnedKeys<F>{block + task.key_offset, after(task.key_offset), &queries},
                 TurnedValues<F>{block + task.value_offset, after(task.value_offset)});
  });
}

inline void attend(const AttendTask& task) {
  const int rows = task.tokens * task.repeat;
  for (int i = 0; i < rows; ++i) {
    task.row[i] = {-INFINITY, 0.0f};
    std::fill_n(task.mix + i * task.value_size, task.value_size, 0.0f);
  }
  if (task.value_in_key) return attend_decoded(task);
  if (task.type == TensorType::Q8_0) return attend_turned<Q8_0>(task);
  if (task.type == TensorType::Q4_0) return attend_turned<Q4_0>(task);
  if (rows > kMostInPlace) return attend_decoded(task);
  switch (task.type) {
    case TensorType::F32:
      return attend_cached<CachedFloats>(task);
    case TensorType::BF16:
      return attend_cached<CachedBfloats>(task);
    default:
      return attend_cached<CachedHalves>(task);
  }
}

// Joins the parts of one row, in order, and divides by the sum of all weights. `sink`, if
// there is one, is a score more that has no value.
inline void join_parts(const AttendRow* parts, const float* mixes, int64_t count,
                       int64_t part_stride, int64_t mix_stride, int64_t size, const float* sink,
                       float* out) {
  float best = sink ? *sink : -INFINITY;
  for (int64_t p = 0; p < count; ++p) best = std::max(best, parts[p * part_stride].maximum);
  float total = sink ? std::exp(*sink - best) : 0;
  std::fill_n(out, size, 0.0f);
  for (int64_t p = 0; p < count; ++p) {
    const AttendRow& part = parts[p * part_stride];
    if (part.sum == 0) continue;  // saw nothing: outside the window
    const float weight = std::exp(part.maximum - best);
    total += weight * part.sum;
    for (int64_t d = 0; d < size; ++d) out[d] += weight * mixes[p * mix_stride + d];
  }
  for (int64_t d = 0; d < size; ++d) out[d] /= total;
}

}  // namespace ingot::INGOT_ISA
