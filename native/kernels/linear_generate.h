// Matrix products for generation: a few columns, straight from the packed weights.
//
// Lanes run along a row. A tile of rows x columns is kept in registers: the words of a
// row are unpacked once for all columns of the tile, the inputs loaded once for all its
// rows, and a row's result is summed over the lanes at the very end. Each result is made
// by the same operations in the same order whatever the tile, so it does not depend on the
// number of columns or on the range of rows.
#pragma once

#include "isa/table.h"
#include "kernels/linear_block.h"

namespace ingot::INGOT_ISA {

// Adds words . values to the lanes of `total`.
inline simd::Ints dot_words(simd::Ints total, const simd::Words& words, const int16_t* values) {
  for (int i = 0; i < 16 / simd::kLanes; ++i)
    total = simd::dot(total, words.v[i], simd::load_pairs(values + i * 2 * simd::kLanes));
  return total;
}

// One stretch of kRows rows against kColumns inputs.
template <class F, int kRows, int kColumns>
inline void add_stretch(const uint8_t* const (&blocks)[kRows],
                        const InputBlock* const (&inputs)[kColumns], int count,
                        simd::Floats (&total)[kRows][kColumns]) {
  Stretch<F> stretch[kRows];
  for (int r = 0; r < kRows; ++r) stretch[r] = read_stretch<F>(blocks[r], count);

  if constexpr (kRuns<F> == 1) {
    simd::Ints sums[kRows][kColumns];
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kColumns; ++c) sums[r][c] = simd::zero_ints();
    for_each_slice<F>([&](auto slice) {
      for (int r = 0; r < kRows; ++r) {
        const simd::Words words = read_words<F, slice>(blocks[r], stretch[r]);
        for (int c = 0; c < kColumns; ++c)
          sums[r][c] = dot_words(sums[r][c], words, inputs[c]->values + slice * 32);
      }
    });
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kColumns; ++c)
        total[r][c] = simd::multiply_add(simd::to_floats(sums[r][c]),
                                         simd::splat_float(stretch[r].factor[0] * inputs[c]->scale),
                                         total[r][c]);
  } else {
    for (int b = 0; b < count; ++b) {
      for_each_slice<F>([&](auto slice) {
        const int first = b * F::kWeights + slice * 32;
        for (int r = 0; r < kRows; ++r) {
          const simd::Words words = read_words<F, slice>(blocks[r] + b * F::kBytes, stretch[r]);
          for (int c = 0; c < kColumns; ++c) {
            const simd::Floats scale = simd::splat_float(inputs[c]->scale);
            if constexpr (kRun<F> >= 32) {
              const simd::Ints sums =
                  dot_words(simd::zero_ints(), words, inputs[c]->values + first);
              const simd::Floats factor =
                  simd::multiply(simd::splat_float(stretch[r].factor[first / kRun<F>]), scale);
              total[r][c] = simd::multiply_add(simd::to_floats(sums), factor, total[r][c]);
            } else {
              const float* factors = stretch[r].factor + first / 16;
              for (int i = 0; i < 16 / simd::kLanes; ++i) {
                const simd::Ints sums =
                    simd::dot(simd::zero_ints(), words.v[i],
                              simd::load_pairs(inputs[c]->values + first + i * 2 * simd::kLanes));
                const simd::Floats factor =
                    simd::multiply(simd::splat_runs(factors + i * simd::kLanes / 8), scale);
                total[r][c] = simd::multiply_add(simd::to_floats(sums), factor, total[r][c]);
              }
            }
          }
        }
      });
    }
  }

  if constexpr (F::kHasMin) {
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kColumns; ++c)
        for (int i = 0; i < kInputBlock / 16; i += simd::kLanes)
          total[r][c] = simd::multiply_add(simd::load_floats(stretch[r].min + i),
                                           simd::load_floats(inputs[c]->sum16 + i), total[r][c]);
  }
}

template <class F, int kRows, int kColumns>
void generate_tile(const uint8_t* weight, int64_t row_bytes, const uint8_t* quantized,
                   int64_t quantized_stride, int64_t width, float* out, int64_t out_stride) {
  const uint8_t* blocks[kRows];
  const InputBlock* inputs[kColumns];
  simd::Floats total[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) blocks[r] = weight + r * row_bytes;
  for (int c = 0; c < kColumns; ++c)
    inputs[c] = reinterpret_cast<const InputBlock*>(quantized + c * quantized_stride);
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kColumns; ++c) total[r][c] = simd::zero_floats();

  constexpr int kStretchBytes = kBlocksPerStretch<F> * F::kBytes;
  for (int64_t left = width / F::kWeights; left > 0; left -= kBlocksPerStretch<F>) {
    for (int r = 0; r < kRows; ++r) {
      // The same place in the rows this thread takes up next.
      const uint8_t* next = blocks[r] + kRows * row_bytes;
      for (int i = 0; i < kStretchBytes; i += 64) simd::prefetch(next + i);
    }
    const int count = left < kBlocksPerStretch<F> ? static_cast<int>(left) : kBlocksPerStretch<F>;
    add_stretch<F, kRows, kColumns>(blocks, inputs, count, total);
    for (int r = 0; r < kRows; ++r) blocks[r] += kStretchBytes;
    for (int c = 0; c < kColumns; ++c) ++inputs[c];
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kColumns; ++c) out[c * out_stride + r] = simd::sum(total[r][c]);
}

// All columns, in tiles of 8, 4, 2 and 1.
template <class F, int kRows, int kColumns>
void generate_columns(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                      int64_t column, float* out, int64_t out_stride) {
  for (; input.columns - column >= kColumns; column += kColumns)
    generate_tile<F, kRows, kColumns>(
        weight, row_bytes, input.quantized + column * input.quantized_stride,
        input.quantized_stride, input.width, out + column * out_stride, out_stride);
  if constexpr (kColumns > 1)
    generate_columns<F, kRows, kColumns / 2>(weight, row_bytes, input, column, out, out_stride);
}

template <class F, int kRows, int kColumns>
int64_t generate_rows(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                      int64_t row, int64_t end, float* out, int64_t out_stride) {
  for (; end - row >= kRows; row += kRows)
    generate_columns<F, kRows, kColumns>(weight + row * row_bytes, row_bytes, input, 0, out + row,
                                         out_stride);
  return row;
}

template <class F>
void generate_linear(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                     int64_t begin, int64_t end, float* out, int64_t out_stride, uint8_t*) {
  if (input.columns == 1) {
    begin = generate_rows<F, 4, 1>(weight, row_bytes, input, begin, end, out, out_stride);
    generate_rows<F, 1, 1>(weight, row_bytes, input, begin, end, out, out_stride);
  } else {
    begin = generate_rows<F, 2, 8>(weight, row_bytes, input, begin, end, out, out_stride);
    generate_rows<F, 1, 8>(weight, row_bytes, input, begin, end, out, out_stride);
  }
}

}  // namespace ingot::INGOT_ISA
