// Matrix products for prompts: many columns against panels of unpacked weights.
//
// Lanes are rows. A tile of strips x columns is kept in registers as 32-bit sums, flushed
// into floats at the interval at which they are still exact. A panel's results stay in
// scratch over all of K and leave once. Each result is made by the same operations in the
// same order whatever the tile, so it does not depend on its neighbours.
#pragma once

#include "isa/table.h"
#include "kernels/linear_panel.h"

namespace ingot::INGOT_ISA {

inline constexpr int kTileStrips = simd::kLanes == 16 ? 3 : 2;
inline constexpr int kTileColumns = simd::kLanes == 16 ? 8 : 4;

// Results of a panel: one vector of rows a strip, for every column.
struct alignas(64) PanelResults {
  float value[kPanelColumns][kPanelRows];
};

struct PromptScratch {
  Strip strips[kStrips];
  PanelResults results;
};

// Adds `weights` weights of kTall strips times kWide columns to the results.
template <int kTall, int kWide>
void prompt_tile(const Strip* strips, PanelShape shape, const uint8_t* quantized, int64_t stride,
                 int64_t weights, float* results) {
  const auto input = [&](int c) {
    return reinterpret_cast<const InputBlock*>(quantized + c * stride);
  };
  int flush = 0, group = 0;
  for (int64_t k = 0; k < weights; k += kInputBlock, quantized += sizeof(InputBlock)) {
    const int depth = static_cast<int>(weights - k < kInputBlock ? weights - k : kInputBlock);
    for (int first = 0; first < depth; first += shape.flush, ++flush) {
      simd::Ints sums[kTall][kWide];
      for (int s = 0; s < kTall; ++s)
        for (int c = 0; c < kWide; ++c) sums[s][c] = simd::zero_ints();
      const int64_t pair = (k + first) / 2;
      for (int i = 0; i < shape.flush / 2; ++i) {
        simd::Pairs words[kTall];
        for (int s = 0; s < kTall; ++s) words[s] = simd::load_pairs(strips[s].words[pair + i][0]);
        for (int c = 0; c < kWide; ++c) {
          const simd::Pairs x = simd::splat_pair(input(c)->values + first + 2 * i);
          for (int s = 0; s < kTall; ++s) sums[s][c] = simd::dot(sums[s][c], words[s], x);
        }
      }
      for (int s = 0; s < kTall; ++s) {
        const simd::Floats factor = simd::load_floats(strips[s].factor[flush]);
        for (int c = 0; c < kWide; ++c) {
          float* at = results + c * kPanelRows + s * simd::kLanes;
          const simd::Floats scaled = simd::multiply(factor, simd::splat_float(input(c)->scale));
          simd::store(
              at, simd::multiply_add(simd::to_floats(sums[s][c]), scaled, simd::load_floats(at)));
        }
      }
    }
    if (shape.min_group == 0) continue;
    const int groups = depth / shape.min_group;
    for (int s = 0; s < kTall; ++s) {
      for (int c = 0; c < kWide; ++c) {
        const float* input_sums = shape.min_group == 32 ? input(c)->sum32 : input(c)->sum16;
        float* at = results + c * kPanelRows + s * simd::kLanes;
        simd::Floats total = simd::load_floats(at);
        for (int g = 0; g < groups; ++g)
          total = simd::multiply_add(simd::load_floats(strips[s].min[group + g]),
                                     simd::splat_float(input_sums[g]), total);
        simd::store(at, total);
      }
    }
    group += groups;
  }
}

// One tile of columns against all strips, three (or two) at a time.
template <int kWide>
void prompt_strips(const Strip* strips, int64_t count, PanelShape shape, const uint8_t* quantized,
                   int64_t stride, int64_t weights, float* results) {
  for (; count >= kTileStrips; count -= kTileStrips) {
    prompt_tile<kTileStrips, kWide>(strips, shape, quantized, stride, weights, results);
    strips += kTileStrips;
    results += kTileStrips * simd::kLanes;
  }
  if (count == 2) {
    prompt_tile<2, kWide>(strips, shape, quantized, stride, weights, results);
  } else if (count == 1) {
    prompt_tile<1, kWide>(strips, shape, quantized, stride, weights, results);
  }
}

template <int kWide>
void prompt_columns(const Strip* strips, int64_t count, PanelShape shape, const uint8_t* quantized,
                    int64_t stride, int64_t weights, int64_t columns, float* results) {
  for (; columns >= kWide; columns -= kWide) {
    prompt_strips<kWide>(strips, count, shape, quantized, stride, weights, results);
    quantized += kWide * stride;
    results += kWide * kPanelRows;
  }
  if constexpr (kWide > 1)
    prompt_columns<kWide / 2>(strips, count, shape, quantized, stride, weights, columns, results);
}

inline int64_t prompt_scratch_bytes(int64_t) { return sizeof(PromptScratch); }

template <class F>
void prompt_linear(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                   int64_t begin, int64_t end, float* out, int64_t out_stride, uint8_t* scratch) {
  PromptScratch& panel = *reinterpret_cast<PromptScratch*>(scratch);
  for (int64_t column = 0; column < input.columns; column += kPanelColumns) {
    const int64_t columns =
        input.columns - column < kPanelColumns ? input.columns - column : kPanelColumns;
    const uint8_t* quantized = input.quantized + column * input.quantized_stride;
    for (int64_t row = begin; row < end; row += kPanelRows) {
      const int64_t rows = end - row < kPanelRows ? end - row : kPanelRows;
      const int64_t strips = (rows + simd::kLanes - 1) / simd::kLanes;
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t r = 0; r < strips * simd::kLanes; ++r) panel.results.value[c][r] = 0;
      for (int64_t k = 0; k < input.width; k += kPanelDepth) {
        const int64_t weights = input.width - k < kPanelDepth ? input.width - k : kPanelDepth;
        unpack_panel<F>(weight + row * row_bytes + k / F::kWeights * F::kBytes, row_bytes, rows,
                        weights, panel.strips);
        prompt_columns<kTileColumns>(panel.strips, strips, kPanelShape<F>,
                                     quantized + quantized_bytes(k), input.quantized_stride,
                                     weights, columns, panel.results.value[0]);
      }
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t r = 0; r < rows; ++r)
          out[(column + c) * out_stride + row + r] = panel.results.value[c][r];
    }
  }
}

}  // namespace ingot::INGOT_ISA
