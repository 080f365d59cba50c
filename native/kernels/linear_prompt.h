// Matrix products for prompts: many columns against panels of unpacked weights.
//
// Lanes are rows. A tile of strips x columns is kept in registers as 32-bit sums, flushed
// into floats at the interval at which they are still exact. Its strips (a stretch of 48
// rows) stay in the first-level cache while all columns pass by; the panel's results stay
// in scratch over all of K and leave once. Each result is made by the same operations in the
// same order whatever the tile, so it does not depend on its neighbours.
#pragma once

#include <cstddef>

#include "isa/table.h"
#include "kernels/linear_panel.h"

namespace ingot::INGOT_ISA {

inline constexpr int kPanelColumns = 512;  // inputs that share one unpacking
// Sums that fill the registers: 24 of 32 with AVX-512, 8 of 16 with AVX2 (which needs others
// to multiply before it adds).
inline constexpr int kTileStrips = simd::kLanes == 16 ? 3 : 2;
inline constexpr int kTileColumns = simd::kLanes == 16 ? 8 : 4;

struct alignas(64) PromptScratch {
  Strip strips[kStrips];
  float results[kPanelColumns][kPanelRows];
};

inline int64_t prompt_scratch_bytes(int64_t) { return sizeof(PromptScratch); }

// Adds `depth` weights (at most a stretch) of kTall strips times kWide columns to the
// results: 32-bit sums from flush to flush, floats from there.
template <int kTall, int kWide>
void prompt_tile(const Strip* strips, PanelShape shape, const InputBlock* const (&inputs)[kWide],
                 int depth, float* results) {
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

// kTall strips times all columns, in tiles of kWide and less. `first`: these are the first
// strips that meet the columns, which may still lie in the third-level cache.
template <int kTall, int kWide>
void prompt_columns(const Strip* strips, PanelShape shape, const InputBlock* column,
                    int64_t columns, int depth, bool first, float* results) {
  for (; columns >= kWide; columns -= kWide) {
    const InputBlock* inputs[kWide];
    repeat<kWide>([&](auto c) { inputs[c] = column + c; });
    if (first)
      for (size_t i = 0; i < kWide * sizeof(InputBlock); i += 64)
        simd::prefetch(reinterpret_cast<const uint8_t*>(column + kWide) + i);
    prompt_tile<kTall, kWide>(strips, shape, inputs, depth, results);
    column += kWide;
    results += kWide * kPanelRows;
  }
  if constexpr (kWide > 1)
    prompt_columns<kTall, kWide / 2>(strips, shape, column, columns, depth, first, results);
}

// All strips, kTileStrips at a time.
inline void prompt_strips(const Strip* strips, int64_t count, PanelShape shape,
                          const InputBlock* inputs, int64_t columns, int depth, float* results) {
  bool first = true;
  for (; count >= kTileStrips; count -= kTileStrips) {
    prompt_columns<kTileStrips, kTileColumns>(strips, shape, inputs, columns, depth, first,
                                              results);
    first = false;
    strips += kTileStrips;
    results += kTileStrips * simd::kLanes;
  }
  if (count == 2) {
    prompt_columns<2, kTileColumns>(strips, shape, inputs, columns, depth, first, results);
  } else if (count == 1) {
    prompt_columns<1, kTileColumns>(strips, shape, inputs, columns, depth, first, results);
  }
}

// Up to kPanelRows rows times up to kPanelColumns columns from `column` on.
template <class F>
void prompt_panel(const uint8_t* weight, int64_t row_bytes, int64_t rows, const LinearInput& input,
                  int64_t column, int64_t columns, float* out, int64_t out_stride,
                  PromptScratch& scratch) {
  const int64_t strips = (rows + simd::kLanes - 1) / simd::kLanes;
  const InputBlock* inputs = reinterpret_cast<const InputBlock*>(input.quantized) + column;
  for (int64_t c = 0; c < columns; ++c)
    std::memset(scratch.results[c], 0, sizeof(scratch.results[c]));
  for (int64_t k = 0; k < input.width; k += kInputBlock) {
    const int depth =
        static_cast<int>(input.width - k < kInputBlock ? input.width - k : kInputBlock);
    unpack_panel<F>(weight + k / F::kWeights * F::kBytes, row_bytes, rows, depth / F::kWeights,
                    scratch.strips);
    prompt_strips(scratch.strips, strips, kPanelShape<F>, inputs, columns, depth,
                  scratch.results[0]);
    inputs = next_stretch(inputs, input);
  }
  for (int64_t c = 0; c < columns; ++c)
    std::memcpy(out + c * out_stride, scratch.results[c],
                static_cast<size_t>(rows) * sizeof(float));
}

template <class F>
void prompt_linear(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                   int64_t begin, int64_t end, float* out, int64_t out_stride, uint8_t* scratch) {
  for (int64_t column = 0; column < input.columns; column += kPanelColumns) {
    const int64_t left = input.columns - column;
    for (int64_t row = begin; row < end; row += kPanelRows)
      prompt_panel<F>(weight + row * row_bytes, row_bytes,
                      end - row < kPanelRows ? end - row : kPanelRows, input, column,
                      left < kPanelColumns ? left : kPanelColumns, out + column * out_stride + row,
                      out_stride, *reinterpret_cast<PromptScratch*>(scratch));
  }
}

}  // namespace ingot::INGOT_ISA
