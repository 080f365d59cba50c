// Panels: a stretch of many rows unpacked for a prompt, where many columns reuse it.
//
// A strip is kLanes rows, one row a lane. Its words are stored as (k, k+1) pairs: vector
// k/2 holds that pair of every row, ready to meet one broadcast pair of inputs. Beside
// them lie the float factors, one vector a flush, and the minimums, one vector a group.
//
// In: packed rows. Out: strips in scratch. Where rows run out, lanes repeat the last one.
#pragma once

#include "kernels/linear_block.h"

namespace ingot::INGOT_ISA {

inline constexpr int kPanelRows = 96;  // a multiple of every tile's height
inline constexpr int kStrips = kPanelRows / simd::kLanes;

struct alignas(64) Strip {
  int16_t words[kInputBlock / 2][simd::kLanes][2];
  float factor[16][simd::kLanes];
  float min[16][simd::kLanes];
};

// What the tile kernel needs from a format.
struct PanelShape {
  int flush;      // weights between flushes
  int min_group;  // weights that share a minimum; 0: there are none
};
template <class F>
inline constexpr PanelShape kPanelShape{flush_interval<F>(), !F::kHasMin      ? 0
                                                             : F::kGroup > 16 ? 32
                                                                              : 16};

// Unpacks `count` blocks of `rows` rows.
template <class F>
inline void unpack_strip(const uint8_t* blocks, int64_t row_bytes, int rows, int count,
                         Strip& strip) {
  constexpr int kVectors = 16 / simd::kLanes;
  constexpr PanelShape shape = kPanelShape<F>;
  constexpr int kFlushes = kInputBlock / shape.flush;
  const uint8_t* row[simd::kLanes];
  Stretch<F> stretch[simd::kLanes];
  for (int r = 0; r < simd::kLanes; ++r) {
    row[r] = blocks + (r < rows ? r : rows - 1) * row_bytes;
    read_stretch<F>(row[r], count, stretch[r]);
    for (int i = 0; i < kFlushes; ++i)
      strip.factor[i][r] = stretch[r].factor[i * shape.flush / kRun<F>];
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

// Unpacks `count` blocks of up to kPanelRows rows, and asks for the stretch that follows.
template <class F>
void unpack_panel(const uint8_t* blocks, int64_t row_bytes, int64_t rows, int count,
                  Strip* strips) {
  for (int64_t row = 0; row < rows; row += simd::kLanes, ++strips) {
    const int64_t left = rows - row;
    const int taken = left < simd::kLanes ? static_cast<int>(left) : simd::kLanes;
    const uint8_t* from = blocks + row * row_bytes;
    unpack_strip<F>(from, row_bytes, taken, count, *strips);
    for (int r = 0; r < taken; ++r)
      prefetch_stretch<F>(from + r * row_bytes + kBlocksPerStretch<F> * F::kBytes);
  }
}

}  // namespace ingot::INGOT_ISA
