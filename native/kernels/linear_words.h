// Panels of words for prompts (linear_prompt.h): 16-bit weights, 16-bit inputs.
//
// A strip's words are stored as (k, k+1) pairs: vector k/2 holds that pair of every row, ready to
// meet one broadcast pair of inputs. Beside them lie the float factors, one vector a flush, and the
// minimums, one vector a group. A tile keeps 32-bit sums in registers, flushed into floats at the
// interval at which they are still exact.
#pragma once

#include <cstddef>

#include "kernels/linear_block.h"
#include "kernels/linear_prompt.h"

namespace ingot::INGOT_ISA {

struct alignas(64) WordStrip {
  int16_t words[kInputBlock / 2][simd::kLanes][2];
  float factor[16][simd::kLanes];
  float min[16][simd::kLanes];
};

// What the tile needs from a format; not the format itself, so that formats share the code.
struct WordShape {
  int flush;      // weights between flushes
  int min_group;  // weights that share a minimum; 0: there are none
};

// Unpacks `count` blocks of `rows` rows. Where rows run out, lanes repeat the last one.
template <class F>
inline void unpack_word_strip(const uint8_t* blocks, int64_t row_bytes, int rows, int count,
                              WordStrip& strip) {
  constexpr int kVectors = 16 / simd::kLanes;
  constexpr int kFlush = flush_interval<F>(), kFlushes = kInputBlock / kFlush;
  const uint8_t* row[simd::kLanes];
  Stretch<F> stretch[simd::kLanes];
  for (int r = 0; r < simd::kLanes; ++r) {
    row[r] = blocks + (r < rows ? r : rows - 1) * row_bytes;
    read_stretch<F>(row[r], count, stretch[r]);
    for (int i = 0; i < kFlushes; ++i) strip.factor[i][r] = stretch[r].factor[i * kFlush / kRun<F>];
    if constexpr (F::kHasMin) {
      float min[16];
      repeat<Stretch<F>::kMinVectors>(
          [&](auto v) { simd::store(min + v * simd::kLanes, stretch[r].min[v]); });
      for (int i = 0; i < kMins<F>; ++i) strip.min[i][r] = min[i];
    }
  }
  for (int b = 0; b < count; ++b) {
    for_each_slice<F>([&](auto slice) {
      simd::Pairs tile[kVectors][simd::kLanes];
      for (int r = 0; r < simd::kLanes; ++r) {
        const simd::Words words = read_words<F, slice>(row[r] + b * F::kBytes, stretch[r]);
        for (int v = 0; v < kVectors; ++v) tile[v][r] = words.v[v];
      }
      const int first = (b * F::kWeights + slice * 32) / 2;
      for (int v = 0; v < kVectors; ++v) {
        simd::transpose(tile[v]);
        for (int i = 0; i < simd::kLanes; ++i)
          simd::store_pairs(strip.words[first + v * simd::kLanes + i][0], tile[v][i]);
      }
    });
  }
}

// Adds `depth` weights (at most a stretch) of kTall strips times kWide columns to the
// results: 32-bit sums from flush to flush, floats from there.
template <int kTall, int kWide>
INGOT_FLATTEN [[gnu::noinline]] void word_tile(const WordStrip* strips, WordShape shape,
                                               const InputBlock* const (&inputs)[kWide], int depth,
                                               float* results) {
  simd::Floats part[kTall][kWide];
  for (int flush = 0; flush * shape.flush < depth; ++flush) {
    simd::Ints sums[kTall][kWide];
    repeat<kTall>([&](auto s) { repeat<kWide>([&](auto c) { sums[s][c] = simd::zero_ints(); }); });
    const int begin = flush * shape.flush / 2, end = begin + shape.flush / 2;
    for (int pair = begin; pair < end; ++pair) {
      simd::Pairs words[kTall];
      repeat<kTall>([&](auto s) { words[s] = simd::load_pairs(strips[s].words[pair][0]); });
      repeat<kWide>([&](auto c) {
        const simd::Pairs x = simd::splat_pair(inputs[c]->values + 2 * pair);
        repeat<kTall>([&](auto s) { sums[s][c] = simd::dot(sums[s][c], words[s], x); });
      });
    }
    repeat<kTall>([&](auto s) {
      const simd::Floats factor = simd::load_floats(strips[s].factor[flush]);
      repeat<kWide>([&](auto c) {
        const simd::Floats floats = simd::to_floats(sums[s][c]);
        part[s][c] = flush == 0 ? simd::multiply(floats, factor)
                                : simd::multiply_add(floats, factor, part[s][c]);
      });
    });
  }
  const auto result = [&](int s, int c) { return results + c * kPanelRows + s * simd::kLanes; };
  simd::Floats total[kTall][kWide];
  repeat<kTall>([&](auto s) {
    repeat<kWide>([&](auto c) {
      total[s][c] = simd::multiply_add(part[s][c], simd::splat_float(inputs[c]->scale),
                                       simd::load_floats(result(s, c)));
    });
  });
  if (shape.min_group) {
    const int64_t sums =
        shape.min_group == 32 ? offsetof(InputBlock, sum32) : offsetof(InputBlock, sum16);
    for (int g = 0; g * shape.min_group < depth; ++g) {
      simd::Floats min[kTall];
      repeat<kTall>([&](auto s) { min[s] = simd::load_floats(strips[s].min[g]); });
      repeat<kWide>([&](auto c) {
        const uint8_t* sum = reinterpret_cast<const uint8_t*>(inputs[c]) + sums;
        const simd::Floats x = simd::splat_float(reinterpret_cast<const float*>(sum)[g]);
        repeat<kTall>([&](auto s) { total[s][c] = simd::multiply_add(min[s], x, total[s][c]); });
      });
    }
  }
  repeat<kTall>(
      [&](auto s) { repeat<kWide>([&](auto c) { simd::store(result(s, c), total[s][c]); }); });
}

// The panel of a format, as linear_prompt.h takes it.
template <class F>
struct WordPanel : FileRows<F> {
  using Strip = WordStrip;
  using Input = InputBlock;
  // Sums that fill the registers: 24 of 32 with AVX-512, 8 of 16 with AVX2 (which needs others
  // to multiply before it adds).
  static constexpr int kTileStrips = simd::kLanes == 16 ? 3 : 2;
  static constexpr int kTileColumns = simd::kLanes == 16 ? 8 : 4;

  static const Input* inputs(const LinearInput& input) {
    return reinterpret_cast<const Input*>(input.quantized);
  }
  static void unpack(const uint8_t* blocks, int64_t row_bytes, int rows, int count, Strip& strip) {
    unpack_word_strip<F>(blocks, row_bytes, rows, count, strip);
  }
  template <int kTall, int kWide>
  static void tile(const Strip* strips, const Input* const (&inputs)[kWide], int depth,
                   float* results) {
    constexpr WordShape shape{flush_interval<F>(), F::kHasMin ? kMinGroup<F> : 0};
    word_tile<kTall, kWide>(strips, shape, inputs, depth, results);
  }
};

}  // namespace ingot::INGOT_ISA
