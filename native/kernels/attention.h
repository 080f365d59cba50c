// Attention of a few query rows over the paged cache of one key head, in one pass.
//
// The cache is walked block by block. A block's keys and values are decoded to float32 in
// scratch once and used by all rows of the task: the heads that share the key head, of one
// token (generation) or of a tile of tokens (prompt). Each row keeps a running maximum, a
// running sum and a running mix (online softmax). A row's arithmetic depends only on its
// query and the blocks it sees, never on the other rows.
//
// Inside a block, keys of float types are stored transposed ([element][position]) so that lanes
// are positions; values are stored row by row. Block-quantized keys are stored row by row and
// transposed in scratch. A layer of latents keeps keys only: values are their last elements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "formats/plain.h"
#include "formats/q4_0.h"
#include "formats/q8_0.h"
#include "kernels/decode.h"
#include "kernels/rowwise.h"
#include "kernels/tasks.h"
#include "simd/floats.h"
#include "simd/vector.h"

namespace ingot::INGOT_ISA {

inline constexpr int kBlock = kKvBlockTokens;
static_assert(kBlock == 32, "scores of a block are two vectors");

inline bool is_plain(TensorType type) {
  return type == TensorType::F32 || type == TensorType::F16 || type == TensorType::BF16;
}

inline void decode_kv(TensorType type, const uint8_t* from, int64_t count, float* out) {
  switch (type) {
    case TensorType::F32:
      return decode_plain<float>(from, out, count);
    case TensorType::BF16:
      return decode_plain<Bfloat16>(from, out, count);
    case TensorType::Q8_0:
      return decode_blocks<Q8_0>(from, out, count / 32);
    case TensorType::Q4_0:
      return decode_blocks<Q4_0>(from, out, count / 32);
    default:
      for (int64_t i = 0; i < count; i += 16) simd::load_halves16(from + 2 * i).store(out + i);
  }
}

// keys[element][position] of the block
inline void decode_keys(const AttendTask& task, const uint8_t* from, float* rows, float* keys) {
  if (is_plain(task.type)) return decode_kv(task.type, from, kBlock * task.head_size, keys);
  decode_kv(task.type, from, kBlock * task.head_size, rows);
  for (int position = 0; position < kBlock; ++position)
    for (int64_t d = 0; d < task.head_size; ++d)
      keys[d * kBlock + position] = rows[position * task.head_size + d];
}

// scores[i][position] = query row i . key, for kRows rows
template <int kRows>
inline void score_rows(const float* const* query, const float* keys, int64_t size, float* scores) {
  F32x16 lo[kRows], hi[kRows];
  for (int i = 0; i < kRows; ++i) lo[i] = hi[i] = F32x16::splat(0);
  for (int64_t d = 0; d < size; ++d) {
    const F32x16 key_lo = F32x16::load(keys + d * kBlock),
                 key_hi = F32x16::load(keys + d * kBlock + 16);
    for (int i = 0; i < kRows; ++i) {
      const F32x16 q = F32x16::splat(query[i][d]);
      lo[i] = simd::fma(q, key_lo, lo[i]);
      hi[i] = simd::fma(q, key_hi, hi[i]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    lo[i].store(scores + i * kBlock);
    hi[i].store(scores + i * kBlock + 16);
  }
}

// One block's share of a row: what the mix so far is multiplied with, and what each value is.
struct Fold {
  float shrink;
  int first, last;  // positions that the row sees
  alignas(64) float weight[kBlock];
};

// Folds one block's scores into a row's running softmax.
inline void fold_scores(const AttendTask& task, AttendRow& row, float* scores, Fold& fold) {
  for (int position = 0; position < fold.first; ++position) scores[position] = -INFINITY;
  for (int position = fold.last; position < kBlock; ++position) scores[position] = -INFINITY;
  const F32x16 scale = F32x16::splat(task.scale);
  F32x16 lo = F32x16::load(scores) * scale, hi = F32x16::load(scores + 16) * scale;
  if (task.softcap != 0) {
    const F32x16 cap = F32x16::splat(task.softcap);
    lo = cap * simd::tanh(lo / cap);
    hi = cap * simd::tanh(hi / cap);
    lo.store(scores);
    hi.store(scores + 16);
    for (int position = 0; position < fold.first; ++position) scores[position] = -INFINITY;
    for (int position = fold.last; position < kBlock; ++position) scores[position] = -INFINITY;
    lo = F32x16::load(scores);
    hi = F32x16::load(scores + 16);
  }
  const float best = std::max(row.maximum, simd::maximum(simd::max(lo, hi)));
  const F32x16 top = F32x16::splat(best);
  simd::exp(lo - top).store(fold.weight);
  simd::exp(hi - top).store(fold.weight + 16);
  for (int position = 0; position < fold.first; ++position) fold.weight[position] = 0;
  for (int position = fold.last; position < kBlock; ++position) fold.weight[position] = 0;
  const float total = simd::sum(F32x16::load(fold.weight) + F32x16::load(fold.weight + 16));
  fold.shrink = std::exp(row.maximum - best);  // 0 for the first block: maximum is -inf
  row.maximum = best;
  row.sum = row.sum * fold.shrink + total;
}

// mix = mix * shrink + sum over positions of weight * value, for kRows rows and kParts vectors
// of elements.
template <int kRows, int kParts>
inline void mix_part(float* mix, int64_t size, const Fold* folds, const float* values, int first,
                     int last) {
  F32x16 total[kRows][kParts];
  repeat<kRows>([&](auto r) {
    const F32x16 shrink = F32x16::splat(folds[r].shrink);
    repeat<kParts>([&](auto p) { total[r][p] = F32x16::load(mix + r * size + p * 16) * shrink; });
  });
  for (int position = first; position < last; ++position) {
    F32x16 value[kParts];
    repeat<kParts>([&](auto p) { value[p] = F32x16::load(values + position * size + p * 16); });
    repeat<kRows>([&](auto r) {
      const F32x16 weight = F32x16::splat(folds[r].weight[position]);
      repeat<kParts>([&](auto p) { total[r][p] = simd::fma(weight, value[p], total[r][p]); });
    });
  }
  repeat<kRows>(
      [&](auto r) { repeat<kParts>([&](auto p) { total[r][p].store(mix + r * size + p * 16); }); });
}

// Elements from `d` on, kParts vectors at a time, then fewer; returns where whole vectors end.
template <int kRows, int kParts>
inline int64_t mix_parts(float* mix, int64_t d, int64_t size, const Fold* folds,
                         const float* values, int first, int last) {
  for (; d + kParts * 16 <= size; d += kParts * 16)
    mix_part<kRows, kParts>(mix + d, size, folds, values + d, first, last);
  if constexpr (kParts > 1)
    return mix_parts<kRows, kParts / 2>(mix, d, size, folds, values, first, last);
  return d;
}

// Sums that stay in registers, enough of them that none waits for the last.
inline constexpr int kMixSums = simd::kLanes == 16 ? 16 : 4;

// A position that one of the rows does not see has weight 0 there.
template <int kRows>
[[gnu::flatten]] inline void mix_values(float* mix, int64_t size, const Fold* folds,
                                        const float* values) {
  int first = folds[0].first, last = folds[0].last;
  for (int r = 1; r < kRows; ++r) {
    first = std::min(first, folds[r].first);
    last = std::max(last, folds[r].last);
  }
  constexpr int kParts = std::min(8, kMixSums / kRows);
  int64_t d = mix_parts<kRows, kParts>(mix, 0, size, folds, values, first, last);
  for (; d < size; ++d)
    for (int r = 0; r < kRows; ++r) {
      float total = mix[r * size + d] * folds[r].shrink;
      for (int position = first; position < last; ++position)
        total += folds[r].weight[position] * values[position * size + d];
      mix[r * size + d] = total;
    }
}

// values[position][element] of the block, if they are the last elements of its keys: from what
// decode_keys left in `rows` and `keys`.
inline void values_of_keys(const AttendTask& task, const float* rows, const float* keys,
                           float* values) {
  const int64_t size = task.value_size, first = task.head_size - size;
  if (!is_plain(task.type)) {
    for (int position = 0; position < kBlock; ++position)
      std::copy_n(rows + position * task.head_size + first, size, values + position * size);
    return;
  }
  for (int64_t d = 0; d < size; d += 16)
    for (int position = 0; position < kBlock; ++position)
      for (int64_t i = d; i < std::min(size, d + 16); ++i)
        values[position * size + i] = keys[(first + i) * kBlock + position];
}

inline void attend(const AttendTask& task) {
  const int rows = task.tokens * task.repeat;
  const int64_t size = task.head_size, value_size = task.value_size;
  float* keys = task.scratch;             // [size][kBlock]
  float* values = keys + size * kBlock;   // [kBlock][size]
  float* spare = values + size * kBlock;  // [kBlock][size], for keys that must be transposed
  float* scores = spare + size * kBlock;  // [4][kBlock]
  for (int i = 0; i < rows; ++i) {
    task.row[i] = {-INFINITY, 0.0f};
    std::fill_n(task.mix + i * value_size, value_size, 0.0f);
  }
  for (int64_t start = task.begin; start < task.end; start += kBlock) {
    const uint8_t* block = task.pool + task.table[start / kBlock] * task.block_bytes;
    decode_keys(task, block + task.key_offset, spare, keys);
    if (task.value_in_key)
      values_of_keys(task, spare, keys, values);
    else
      decode_kv(task.type, block + task.value_offset, kBlock * value_size, values);
    for (int i = 0; i < rows;) {
      // Up to four rows that see something of the block.
      const float* query[4];
      int seeing[4], count = 0;
      Fold folds[4];
      for (; i < rows && count < 4; ++i) {
        const int64_t position = task.positions[i / task.repeat];
        const bool around = !task.causal && task.window > 0;
        const int64_t oldest =
            around ? position - task.window / 2 : oldest_seen(position, task.window, task.chunked);
        const int64_t first = std::max<int64_t>(oldest - start, 0);
        const int64_t newest = task.causal ? position
                               : around    ? position + task.window / 2
                                           : task.end;
        const int64_t seen = std::min(newest + 1, task.end);
        const int64_t last = std::min<int64_t>(kBlock, seen - start);
        if (first >= last) continue;
        folds[count].first = static_cast<int>(first);
        folds[count].last = static_cast<int>(last);
        query[count] = task.query[i];
        seeing[count++] = i;
      }
      if (count == 0) break;
      for (int j = count; j < 4; ++j) query[j] = query[0];
      (count == 1 ? score_rows<1> : score_rows<4>)(query, keys, size, scores);
      for (int j = 0; j < count; ++j)
        fold_scores(task, task.row[seeing[j]], scores + j * kBlock, folds[j]);
      const auto adjacent = [&](int j, int many) {
        return j + many <= count && seeing[j + many - 1] == seeing[j] + many - 1;
      };
      for (int j = 0; j < count;) {
        float* mix = task.mix + seeing[j] * value_size;
        if (adjacent(j, 4)) {
          mix_values<4>(mix, value_size, folds + j, values);
          j += 4;
        } else if (adjacent(j, 2)) {
          mix_values<2>(mix, value_size, folds + j, values);
          j += 2;
        } else {
          mix_values<1>(mix, value_size, folds + j, values);
          j += 1;
        }
      }
    }
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
