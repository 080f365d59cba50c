// Attention of a few query rows over the paged cache of one key head, in one pass.
//
// The cache is walked block by block. A block's keys and values are used by all rows of the task:
// the heads that share the key head, of one token (generation) or of a tile of tokens (prompt).
// Many rows share what is decoded to float32 in scratch; a few read half-precision numbers as they
// lie in the cache, by the same operations in the same order. Each row keeps a running maximum, a
// running sum and a running mix (online softmax). A row's arithmetic depends only on its
// query and the blocks it sees, never on the other rows.
//
// Inside a block, keys of float types are stored transposed ([element][position]) so that lanes
// are positions; values are stored row by row. Block-quantized keys are stored row by row and
// transposed on the way to scratch. A layer of latents keeps keys only: values are their last
// elements.
#pragma once

#include <algorithm>
#include <bit>
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

#if defined(INGOT_TURNS)
// The same of blocks of 32 elements, transposed in registers.
template <class F>
INGOT_FLATTEN inline void decode_turned(const uint8_t* from, int64_t size, float* keys) {
  const int64_t row_bytes = size / F::kWeights * F::kBytes;
  for (int position = 0; position < kBlock; position += simd::kLanes)
    for (int64_t d = 0; d < size; d += F::kWeights) {
      simd::Floats squares[F::kWeights / simd::kLanes][simd::kLanes];
      for (int i = 0; i < simd::kLanes; ++i) {
        const uint8_t* block = from + (position + i) * row_bytes + d / F::kWeights * F::kBytes;
        const simd::Floats scale = simd::splat_float(load_f16(block));
        simd::for_each_float_vector(F::template lanes<0>(block), [&](int first, simd::Floats q) {
          squares[first / simd::kLanes][i] = simd::multiply(scale, q);
        });
      }
      float* out = keys + d * kBlock + position;
      for (simd::Floats(&square)[simd::kLanes] : squares) {
        simd::transpose(square);
        for (int i = 0; i < simd::kLanes; ++i, out += kBlock) simd::store(out, square[i]);
      }
    }
}
#else
template <class F>
inline void decode_turned(const uint8_t* from, int64_t size, float* keys) {
  float row[kMaxHeadSize];
  for (int position = 0; position < kBlock; ++position) {
    decode_blocks<F>(from + position * (size / F::kWeights * F::kBytes), row, size / F::kWeights);
    for (int64_t d = 0; d < size; ++d) keys[d * kBlock + position] = row[d];
  }
}
#endif

// keys[element][position] of the block
inline void decode_keys(TensorType type, int64_t head_size, const uint8_t* from, float* keys) {
  if (type == TensorType::Q8_0) return decode_turned<Q8_0>(from, head_size, keys);
  if (type == TensorType::Q4_0) return decode_turned<Q4_0>(from, head_size, keys);
  decode_kv(type, from, kBlock * head_size, keys);
}

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

#if defined(INGOT_TURNS)
template <class F>
struct CachedBlocks {
  const uint8_t* first;
  const uint8_t* next;
  F32x16 load(int64_t i) const {
    const uint8_t* block = first + i / F::kWeights * F::kBytes;
    const simd::U8x32 q = F::template lanes<0>(block);
    const simd::ByteFloats floats =
        simd::signed_floats(i % F::kWeights ? simd::high_half(q) : simd::low_half(q));
    const simd::Floats scale = simd::splat_float(load_f16(block));
#if defined(__AVX512F__)
    return {simd::multiply(scale, floats.v[0])};
#elif defined(INGOT_NEON)
    const simd::Floats a = simd::multiply(scale, floats.v[0]),
                       b = simd::multiply(scale, floats.v[1]);
    return {{a.lo, a.hi, b.lo, b.hi}};
#else
    return {{simd::multiply(scale, floats.v[0]), simd::multiply(scale, floats.v[1])}};
#endif
  }
  float one(int64_t i) const {
    float values[16];
    load(i / 16 * 16).store(values);
    return values[i % 16];
  }
  void prefetch(int64_t i) const {
    if (next) simd::prefetch(next + i / F::kWeights * F::kBytes);
  }
};
#endif

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
INGOT_FLATTEN inline void score_rows(const float* const* query, const Keys& keys,
                                     const Values& values, int64_t size, float (*scores)[kBlock]) {
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
    const float* query[kGroupOfRows];
    int seeing[kGroupOfRows], count = 0;
    Fold folds[kGroupOfRows];
    for (; i < rows && count < kGroupOfRows; ++i) {
      find_seen(task, i, start, folds[count]);
      if (folds[count].first >= folds[count].last) continue;
      if (task.bias || task.slopes) {
        const int64_t position = task.positions[i / task.repeat];
        place_bias(task, i % task.repeat, start - position, folds[count]);
      }
      query[count] = task.query[i];
      seeing[count++] = i;
    }
    if (count == 0) break;
    alignas(64) float scores[kGroupOfRows][kBlock];
    with_count<kGroupOfRows>(
        count, [&](auto n) { score_rows<n>(query, keys, values, task.head_size, scores); });
    for (int j = 0; j < count; ++j) fold_scores(task, task.row[seeing[j]], scores[j], folds[j]);
    for (int j = 0, run; j < count; j += run) {  // rows next to each other
      for (run = 1; j + run < count && seeing[j + run] == seeing[j] + run;) ++run;
      with_count<kGroupOfRows>(run, [&](auto n) {
        mix_values<n>(task.mix + seeing[j] * task.value_size, task.value_size, folds + j, values);
      });
    }
  }
}

inline void attend(const AttendTask& task) {
  const int rows = task.tokens * task.repeat;
  const int64_t value_size = task.value_size;
  float* keys = task.scratch;                       // [head_size][kBlock]
  float* decoded = keys + task.head_size * kBlock;  // [kBlock][value_size]
  for (int i = 0; i < rows; ++i) {
    task.row[i] = {-INFINITY, 0.0f};
    std::fill_n(task.mix + i * value_size, value_size, 0.0f);
  }
  const bool few = rows <= kGroupOfRows && !task.value_in_key;
  const auto block_at = [&](int64_t start) {
    return start < task.end ? task.pool + task.table[start / kBlock] * task.block_bytes : nullptr;
  };
  for (int64_t start = task.begin; start < task.end; start += kBlock) {
    if (task.chosen && !find_chosen(task, start)) continue;
    const uint8_t* block = block_at(start);
    const uint8_t* next = block_at(start + kBlock);
    const auto cached = [&]<class Numbers>(int64_t offset) {
      return Numbers{block + offset, next ? next + offset : nullptr};
    };
    if (few && task.type == TensorType::F16) {
      attend_block(task, start, cached.operator()<CachedHalves>(task.key_offset),
                   cached.operator()<CachedHalves>(task.value_offset));
      continue;
    }
    decode_keys(task.type, task.head_size, block + task.key_offset, keys);
    const auto attend_values = [&](const auto& values) {
      attend_block(task, start, DecodedNumbers{keys}, values);
    };
#if defined(INGOT_TURNS)
    if (few && task.type == TensorType::Q8_0) {
      attend_values(cached.operator()<CachedBlocks<Q8_0>>(task.value_offset));
      continue;
    }
    if (few && task.type == TensorType::Q4_0) {
      attend_values(cached.operator()<CachedBlocks<Q4_0>>(task.value_offset));
      continue;
    }
#endif
    if (task.value_in_key)
      values_of_keys(task, keys, decoded);
    else
      decode_kv(task.type, block + task.value_offset, kBlock * value_size, decoded);
    attend_values(DecodedNumbers{decoded});
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
