// Matrix products for prompts: many columns against panels of unpacked weights.
//
// A panel is a stretch of many rows, unpacked once for all columns. It consists of strips of kLanes
// rows, one row a lane. What a strip holds and how it is multiplied is the panel's matter: words
// (linear_words.h) or bytes (linear_bytes.h). A tile of strips x columns is summed in registers.
// Its strips are unpacked into the first-level cache and stay there while all columns pass by; the
// panel's results stay in scratch over all of K and leave once. Each result is made by the same
// operations in the same order whatever the tile, so it does not depend on its neighbours.
#pragma once

#include "isa/table.h"
#include "kernels/linear_block.h"

namespace ingot::INGOT_ISA {

inline constexpr int kPanelRows = 96;  // a multiple of every tile's height
inline constexpr int kMostTileStrips = 3;
inline constexpr int kPanelColumns = 512;  // inputs that share one unpacking

template <class Strip>
struct alignas(64) PromptScratch {
  Strip strips[kMostTileStrips];
  float results[kPanelColumns][kPanelRows];
};

template <class Strip>
int64_t prompt_scratch_bytes(int64_t) {
  return sizeof(PromptScratch<Strip>);
}

// kTall strips times all columns, in tiles of kWide and less. `first`: these are the first
// strips that meet the columns, which may still lie in the third-level cache.
template <class Panel, int kTall, int kWide>
void prompt_columns(const typename Panel::Strip* strips, const typename Panel::Input* column,
                    int64_t columns, int depth, bool first, float* results) {
  for (; columns >= kWide; columns -= kWide) {
    const typename Panel::Input* inputs[kWide];
    repeat<kWide>([&](auto c) { inputs[c] = column + c; });
    if (first)
      for (size_t i = 0; i < kWide * sizeof(*column); i += 64)
        simd::prefetch(reinterpret_cast<const uint8_t*>(column + kWide) + i);
    Panel::template tile<kTall, kWide>(strips, inputs, depth, results);
    column += kWide;
    results += kWide * kPanelRows;
  }
  if constexpr (kWide > 1)
    prompt_columns<Panel, kTall, kWide / 2>(strips, column, columns, depth, first, results);
}

// The strips of a tile, kTall or fewer, times all columns.
template <class Panel, int kTall>
void prompt_strips(const typename Panel::Strip* strips, int64_t count,
                   const typename Panel::Input* inputs, int64_t columns, int depth, bool first,
                   float* results) {
  if (count == kTall)
    return prompt_columns<Panel, kTall, Panel::kTileColumns>(strips, inputs, columns, depth, first,
                                                             results);
  if constexpr (kTall > 1)
    prompt_strips<Panel, kTall - 1>(strips, count, inputs, columns, depth, first, results);
}

// How a panel reads the rows of a file.
template <class F>
struct FileRows {
  using Format = F;

  // Where a row's blocks begin that hold weights k and up.
  static const uint8_t* at(const uint8_t* row, int64_t k) {
    return row + k / F::kWeights * F::kBytes;
  }
  // Asks for the stretch of some rows that follows this one.
  static void prefetch_next(const uint8_t* from, int64_t row_bytes, int rows) {
    for (int r = 0; r < rows; ++r)
      prefetch_stretch<F>(from + r * row_bytes + kBlocksPerStretch<F> * F::kBytes);
  }
};

// Unpacks `count` blocks of the rows of a tile, and asks for the stretch that follows.
template <class Panel>
void unpack_strips(const uint8_t* blocks, int64_t row_bytes, int64_t rows, int count,
                   typename Panel::Strip* strips) {
  for (int64_t row = 0; row < rows; row += simd::kLanes, ++strips) {
    const int64_t left = rows - row;
    const int taken = left < simd::kLanes ? static_cast<int>(left) : simd::kLanes;
    const uint8_t* from = blocks + row * row_bytes;
    Panel::unpack(from, row_bytes, taken, count, *strips);
    Panel::prefetch_next(from, row_bytes, taken);
  }
}

// Up to kPanelRows rows times up to kPanelColumns columns from `column` on.
template <class Panel>
void prompt_panel(const uint8_t* weight, int64_t row_bytes, int64_t rows, const LinearInput& input,
                  int64_t column, int64_t columns, float* out, int64_t out_stride,
                  PromptScratch<typename Panel::Strip>& scratch) {
  using F = typename Panel::Format;
  constexpr int64_t kTileHeight = Panel::kTileStrips * simd::kLanes;
  const typename Panel::Input* inputs = Panel::inputs(input) + column;
  for (int64_t c = 0; c < columns; ++c)
    std::memset(scratch.results[c], 0, sizeof(scratch.results[c]));
  for (int64_t k = 0; k < input.width; k += kInputBlock) {
    const int depth =
        static_cast<int>(input.width - k < kInputBlock ? input.width - k : kInputBlock);
    const uint8_t* blocks = Panel::at(weight, k);
    for (int64_t row = 0; row < rows; row += kTileHeight) {
      const int64_t height = rows - row < kTileHeight ? rows - row : kTileHeight;
      unpack_strips<Panel>(blocks + row * row_bytes, row_bytes, height, depth / F::kWeights,
                           scratch.strips);
      const int64_t strips = (height + simd::kLanes - 1) / simd::kLanes;
      float* results = scratch.results[0] + row;
      prompt_strips<Panel, Panel::kTileStrips>(scratch.strips, strips, inputs, columns, depth,
                                               row == 0, results);
    }
    inputs = next_stretch(inputs, input);
  }
  for (int64_t c = 0; c < columns; ++c)
    std::memcpy(out + c * out_stride, scratch.results[c],
                static_cast<size_t>(rows) * sizeof(float));
}

template <class Panel>
void prompt_linear(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                   int64_t begin, int64_t end, float* out, int64_t out_stride, uint8_t* scratch) {
  for (int64_t column = 0; column < input.columns; column += kPanelColumns) {
    const int64_t left = input.columns - column;
    for (int64_t row = begin; row < end; row += kPanelRows)
      prompt_panel<Panel>(weight + row * row_bytes, row_bytes,
                          end - row < kPanelRows ? end - row : kPanelRows, input, column,
                          left < kPanelColumns ? left : kPanelColumns,
                          out + column * out_stride + row, out_stride,
                          *reinterpret_cast<PromptScratch<typename Panel::Strip>*>(scratch));
  }
}

}  // namespace ingot::INGOT_ISA
