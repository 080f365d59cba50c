// Attention of a few query rows over the paged cache of one key head, in one pass.
//
// The cache is walked block by block. A block's keys and values are decoded to float32 in
// scratch once and used by all rows of the task: the heads that share the key head, of one
// token (generation) or of a tile of tokens (prompt). Each row keeps a running maximum, a
// running sum and a running mix (online softmax). A row's arithmetic depends only on its
// query and the blocks it sees, never on the other rows.
//
// Inside a block, keys of plain types lie transposed ([element][position]) so that lanes
// are positions; values lie row by row. Block-quantized keys lie row by row and are
// transposed in scratch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/decode.h"
#include "kernels/rowwise.h"
#include "kernels/tasks.h"
#include "simd/floats.h"

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
      return decode_plain<Half>(from, out, count);
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

// mix = mix * shrink + sum over positions [first, last) of weight * value
inline void mix_values(float* mix, float shrink, const float* weight, const float* values,
                       int64_t size, int first, int last) {
  int64_t d = 0;
  for (; d + 64 <= size; d += 64) {
    F32x16 total[4];
    for (int part = 0; part < 4; ++part)
      total[part] = F32x16::load(mix + d + part * 16) * F32x16::splat(shrink);
    for (int position = first; position < last; ++position) {
      const F32x16 w = F32x16::splat(weight[position]);
      for (int part = 0; part < 4; ++part)
        total[part] =
            simd::fma(w, F32x16::load(values + position * size + d + part * 16), total[part]);
    }
    for (int part = 0; part < 4; ++part) total[part].store(mix + d + part * 16);
  }
  for (; d < size; d += 16) {
    const int64_t rest = std::min<int64_t>(16, size - d);
    F32x16 total = simd::load_part(mix + d, rest) * F32x16::splat(shrink);
    for (int position = first; position < last; ++position)
      total = simd::fma(F32x16::splat(weight[position]),
                        simd::load_part(values + position * size + d, rest), total);
    simd::store_part(mix + d, total, rest);
  }
}

// Folds one block's scores into row i's running softmax.
inline void fold_block(const AttendTask& task, AttendRow& row, float* mix, float* scores,
                       const float* values, int first, int last) {
  float best = row.maximum;
  for (int position = first; position < last; ++position) {
    float score = scores[position] * task.scale;
    if (task.softcap != 0) score = task.softcap * std::tanh(score / task.softcap);
    scores[position] = score;
    best = std::max(best, score);
  }
  const F32x16 top = F32x16::splat(best);
  alignas(64) float weight[kBlock];
  for (int half = 0; half < kBlock; half += 16)
    simd::exp(F32x16::load(scores + half) - top).store(weight + half);
  float total = 0;
  for (int position = first; position < last; ++position) total += weight[position];
  const float shrink = std::exp(row.maximum - best);  // 0 for the first block: maximum is -inf
  row.maximum = best;
  row.sum = row.sum * shrink + total;
  mix_values(mix, shrink, weight, values, task.head_size, first, last);
}

inline void attend(const AttendTask& task) {
  const int rows = task.tokens * task.repeat;
  const int64_t size = task.head_size;
  float* keys = task.scratch;             // [size][kBlock]
  float* values = keys + size * kBlock;   // [kBlock][size]
  float* spare = values + size * kBlock;  // [kBlock][size], for keys that need turning
  float* scores = spare + size * kBlock;  // [rows][kBlock]
  for (int i = 0; i < rows; ++i) {
    task.row[i] = {-INFINITY, 0.0f};
    std::fill_n(task.mix + i * size, size, 0.0f);
  }
  for (int64_t start = task.begin; start < task.end; start += kBlock) {
    const uint8_t* block = task.pool + task.table[start / kBlock] * task.block_bytes;
    decode_keys(task, block + task.key_offset, spare, keys);
    decode_kv(task.type, block + task.value_offset, kBlock * size, values);
    const float* query[4];
    for (int i = 0; i < rows; i += 4) {
      const int group = std::min(4, rows - i);
      for (int j = 0; j < 4; ++j) query[j] = task.query[std::min(i + j, rows - 1)];
      if (group == 1) {
        score_rows<1>(query, keys, size, scores + i * kBlock);
      } else {
        score_rows<4>(query, keys, size, scores + i * kBlock);
      }
    }
    for (int i = 0; i < rows; ++i) {
      const int64_t position = task.positions[i / task.repeat];
      const int64_t oldest = task.window > 0 ? std::max<int64_t>(0, position - task.window + 1) : 0;
      const int first = static_cast<int>(std::max<int64_t>(oldest - start, 0));
      const int last =
          static_cast<int>(std::min<int64_t>({kBlock, position + 1 - start, task.end - start}));
      if (first < last)
        fold_block(task, task.row[i], task.mix + i * size, scores + i * kBlock, values, first,
                   last);
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
