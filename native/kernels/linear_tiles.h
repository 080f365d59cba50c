// Matrix products for prompts on AMX: 16-bit floats (BF16) in tiles, sums in 32-bit floats.
//
// Weights are the left operand: 32 weights of 16 rows, decoded and rounded to BF16, lie in a
// tile as they lie in the file. Inputs are the right operand: a tile holds 16 pairs of values
// of 16 columns, arranged once per batch. Two by two tiles of results stay in the tile
// registers over kTilePanelDepth weights; a wider matrix adds to them in a second round. A result
// is made by the same operations in the same order whatever its neighbours.
//
// BF16 keeps 8 bits of every weight and input: an error of 2^-9 each, in proportion to the
// value (8-bit inputs, as other engines use, err in proportion to the largest of a block).
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "isa/table.h"
#include "kernels/decode.h"
#include "simd/vector.h"

namespace ingot::INGOT_ISA {

inline constexpr int kTileSide = 16;
inline constexpr int kTileStep = 32;  // weights of one tile product
inline constexpr int kTileBytes = 1024;
inline constexpr int64_t kTilePanelRows =
    64;  // rows of a panel: with kTilePanelDepth 512 kB, in L2
inline constexpr int64_t kTilePanelColumns = 512;
inline constexpr int64_t kTilePanelDepth = 4096;

struct alignas(64) TileScratch {
  uint16_t weights[kTilePanelRows / kTileSide][kTilePanelDepth / kTileStep][kTileSide][kTileStep];
  float results[kTilePanelColumns / kTileSide][kTilePanelRows / kTileSide][kTileSide][kTileSide];
  float decoded[kTilePanelDepth];
};

inline int64_t tile_scratch_bytes(int64_t) { return sizeof(TileScratch); }

inline void store_bfloat16s(const float* x, uint16_t* out) {
  const __m512bh packed = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
  _mm512_storeu_si512(out, reinterpret_cast<__m512i>(packed));
}

// Bytes of the inputs of sixteen columns: the first pair of values of each, the second, ...
inline int64_t column_tile_bytes(int64_t width) {
  return (width + kTileStep - 1) / kTileStep * kTileBytes;
}

inline int64_t column_tile_offset(int64_t width, int64_t index) {
  return index / kTileSide * column_tile_bytes(width);
}

inline void arrange_column(const float* column, int64_t width, uint8_t* quantized, int64_t,
                           int64_t index) {
  uint8_t* to = quantized + index / kTileSide * column_tile_bytes(width) + index % kTileSide * 4;
  for (int64_t k = 0; k < width; k += kTileStep) {
    float values[kTileStep] = {};
    const int64_t count = width - k < kTileStep ? width - k : kTileStep;
    std::memcpy(values, column + k, static_cast<size_t>(count) * sizeof(float));
    alignas(64) uint16_t packed[kTileStep];
    store_bfloat16s(values, packed);
    for (int i = 0; i < kTileStep; i += 2, to += kTileSide * 4) std::memcpy(to, packed + i, 4);
  }
}

// Eight tiles of 16 x 64 bytes: 0 to 3 are results, 4 and 5 weights, 6 and 7 inputs.
inline void configure_tiles() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  __asm__ volatile("" : : "r"(&config) : "memory");  // gcc 12 drops the stores without
  _tile_loadconfig(&config);
}

// Two tiles of rows times kWide tiles of columns; `fresh`: there are no results yet. `next`, if
// there is one, are the columns that come after these: asked for on the way.
template <int kWide>
inline void multiply_tiles(const uint8_t* rows, int64_t row_stride, const uint8_t* columns,
                           int64_t column_stride, int64_t steps, bool fresh, float* results,
                           int64_t result_stride, const uint8_t* next) {
  if (fresh) {
    _tile_zero(0);
    _tile_zero(2);
    if constexpr (kWide == 2) {
      _tile_zero(1);
      _tile_zero(3);
    }
  } else {
    _tile_loadd(0, results, 64);
    _tile_loadd(2, results + kTileSide * kTileSide, 64);
    if constexpr (kWide == 2) {
      _tile_loadd(1, results + result_stride, 64);
      _tile_loadd(3, results + result_stride + kTileSide * kTileSide, 64);
    }
  }
  for (int64_t step = 0; step < steps; ++step, rows += kTileBytes, columns += kTileBytes) {
    _tile_loadd(4, rows, 64);
    _tile_loadd(6, columns, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kWide == 2) {
      _tile_loadd(7, columns + column_stride, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    _tile_loadd(5, rows + row_stride, 64);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kWide == 2) _tile_dpbf16ps(3, 5, 7);
    if (next) {
      for (int line = 0; line < kTileBytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(next + line), _MM_HINT_T1);
        _mm_prefetch(reinterpret_cast<const char*>(next + column_stride + line), _MM_HINT_T1);
      }
      next += kTileBytes;
    }
  }
  _tile_stored(0, results, 64);
  _tile_stored(2, results + kTileSide * kTileSide, 64);
  if constexpr (kWide == 2) {
    _tile_stored(1, results + result_stride, 64);
    _tile_stored(3, results + result_stride + kTileSide * kTileSide, 64);
  }
}

// Decodes `depth` weights of up to kTilePanelRows rows into tiles.
template <class F>
void fill_tiles(const uint8_t* weight, int64_t row_bytes, int64_t rows, int64_t depth,
                TileScratch& scratch) {
  for (int64_t r = 0; r < rows; ++r) {
    decode_blocks<F>(weight + r * row_bytes, scratch.decoded, depth / F::kWeights);
    for (int64_t step = 0; step < depth / kTileStep; ++step)
      store_bfloat16s(scratch.decoded + step * kTileStep,
                      scratch.weights[r / kTileSide][step][r % kTileSide]);
  }
}

// A tile of results, [row][column], to out[column][row].
inline void turn_results(const float (*tile)[kTileSide], int64_t rows, int64_t columns, float* out,
                         int64_t out_stride) {
  simd::Pairs lines[kTileSide];
  for (int i = 0; i < kTileSide; ++i)
    lines[i] = simd::load_pairs(reinterpret_cast<const int16_t*>(tile[i]));
  simd::transpose(lines);
  if (rows == kTileSide) {
    for (int64_t c = 0; c < columns; ++c)
      simd::store_pairs(reinterpret_cast<int16_t*>(out + c * out_stride), lines[c]);
  } else {
    for (int64_t c = 0; c < columns; ++c)
      std::memcpy(out + c * out_stride, &lines[c], static_cast<size_t>(rows) * sizeof(float));
  }
}

// Up to kTilePanelRows rows times up to kTilePanelColumns columns, whose inputs are `quantized`.
template <class F>
void tile_panel(const uint8_t* weight, int64_t row_bytes, int64_t rows, const uint8_t* quantized,
                int64_t columns, int64_t width, float* out, int64_t out_stride,
                TileScratch& scratch) {
  const int64_t row_tiles = (rows + kTileSide - 1) / kTileSide;
  const int64_t column_tiles = (columns + kTileSide - 1) / kTileSide;
  const int64_t column_stride = column_tile_bytes(width);
  constexpr int64_t kRowStride = kTilePanelDepth / kTileStep * kTileBytes;
  constexpr int64_t kResultStride = kTilePanelRows * kTileSide;  // of a column tile
  for (int64_t k = 0; k < width; k += kTilePanelDepth) {
    const int64_t depth = width - k < kTilePanelDepth ? width - k : kTilePanelDepth;
    fill_tiles<F>(weight + k / F::kWeights * F::kBytes, row_bytes, rows, depth, scratch);
    for (int64_t c = 0; c < column_tiles; c += 2) {
      const uint8_t* inputs = quantized + c * column_stride + k / kTileStep * kTileBytes;
      const auto multiply = c + 1 < column_tiles ? multiply_tiles<2> : multiply_tiles<1>;
      for (int64_t r = 0; r < row_tiles; r += 2)
        multiply(reinterpret_cast<const uint8_t*>(scratch.weights[r]), kRowStride, inputs,
                 column_stride, depth / kTileStep, k == 0, scratch.results[c][r][0], kResultStride,
                 r == 0 ? inputs + 2 * column_stride : nullptr);
    }
  }
  for (int64_t c = 0; c < column_tiles; ++c)
    for (int64_t r = 0; r < row_tiles; ++r) {
      const int64_t rows_left = rows - r * kTileSide, columns_left = columns - c * kTileSide;
      turn_results(scratch.results[c][r], rows_left < kTileSide ? rows_left : kTileSide,
                   columns_left < kTileSide ? columns_left : kTileSide,
                   out + c * kTileSide * out_stride + r * kTileSide, out_stride);
    }
}

template <class F>
void tile_linear(const uint8_t* weight, int64_t row_bytes, const LinearInput& input, int64_t begin,
                 int64_t end, float* out, int64_t out_stride, uint8_t* scratch) {
  configure_tiles();
  for (int64_t column = 0; column < input.columns; column += kTilePanelColumns) {
    const int64_t left = input.columns - column;
    for (int64_t row = begin; row < end; row += kTilePanelRows)
      tile_panel<F>(weight + row * row_bytes, row_bytes,
                    end - row < kTilePanelRows ? end - row : kTilePanelRows,
                    input.quantized + column_tile_offset(input.width, column),
                    left < kTilePanelColumns ? left : kTilePanelColumns, input.width,
                    out + column * out_stride + row, out_stride,
                    *reinterpret_cast<TileScratch*>(scratch));
  }
  _tile_release();
}

}  // namespace ingot::INGOT_ISA
