// Matrix products with weights that are floats (F32, F16, BF16): nothing is quantized, the
// inputs are used as they are.
//
// Lanes run along a row. A row is summed in stretches of 1024, and their sums are added
// in order. Generation and prompts do the same arithmetic; they differ in what stays in
// the cache: a few rows, or a few columns.
#pragma once

#include "formats/plain.h"
#include "isa/table.h"
#include "simd/vector.h"

namespace ingot::INGOT_ISA {

inline constexpr int64_t kFloatStretch = 1024;  // four columns of it take a third of L1
inline constexpr int kFloatRows = simd::kLanes == 16 ? 4 : 2;
inline constexpr int kFloatColumns = 4;

template <class Value>
inline simd::Floats load_as_floats(const uint8_t* p) {
  if constexpr (requires { Value::load(p); }) {
    return Value::load(p);
  } else {
    float values[simd::kLanes];
    std::memcpy(values, p, sizeof(values));  // a file aligns to less than a float
    return simd::load_floats(values);
  }
}

// The last weights of a row, fewer than kLanes, filled up with zeros.
template <class Value>
inline simd::Floats load_rest(const uint8_t* p, int64_t count) {
  float values[simd::kLanes] = {};
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(load_as<Value>(p + i * static_cast<int64_t>(sizeof(Value))));
  return simd::load_floats(values);
}

// One stretch of kRows rows against kColumns columns; `first` sets the results, else they grow.
template <class Value, int kRows, int kColumns>
inline void float_tile(const uint8_t* weight, int64_t row_bytes, const float* values,
                       int64_t stride, int64_t count, bool first, float* out, int64_t out_stride) {
  simd::Floats total[kRows][kColumns];
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kColumns; ++c) total[r][c] = simd::zero_floats();
  const auto add = [&](auto load_row, auto load_column) {
    simd::Floats inputs[kColumns];
    for (int c = 0; c < kColumns; ++c) inputs[c] = load_column(values + c * stride);
    for (int r = 0; r < kRows; ++r) {
      const simd::Floats row = load_row(weight + r * row_bytes);
      for (int c = 0; c < kColumns; ++c)
        total[r][c] = simd::multiply_add(row, inputs[c], total[r][c]);
    }
  };
  constexpr int64_t kSize = sizeof(Value);
  int64_t k = 0;
  for (; k + simd::kLanes <= count; k += simd::kLanes)
    add([&](const uint8_t* row) { return load_as_floats<Value>(row + k * kSize); },
        [&](const float* column) { return simd::load_floats(column + k); });
  if (k < count)
    add([&](const uint8_t* row) { return load_rest<Value>(row + k * kSize, count - k); },
        [&](const float* column) {
          return load_rest<float>(reinterpret_cast<const uint8_t*>(column + k), count - k);
        });
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      float& result = out[c * out_stride + r];
      const float sum = simd::sum(total[r][c]);
      result = first ? sum : result + sum;
    }
  }
}

// Rows [begin, end) and columns [column, last) of one stretch.
template <class Value, int kRows, int kColumns>
void float_stretch(const uint8_t* weight, int64_t row_bytes, const LinearInput& input, int64_t k,
                   int64_t begin, int64_t end, int64_t column, int64_t last, float* out,
                   int64_t out_stride) {
  const int64_t count = input.width - k < kFloatStretch ? input.width - k : kFloatStretch;
  for (; last - column >= kColumns; column += kColumns) {
    const float* values = input.values + column * input.value_stride + k;
    const uint8_t* from = weight + k * static_cast<int64_t>(sizeof(Value));
    float* to = out + column * out_stride;
    int64_t row = begin;
    for (; end - row >= kRows; row += kRows)
      float_tile<Value, kRows, kColumns>(from + row * row_bytes, row_bytes, values,
                                         input.value_stride, count, k == 0, to + row, out_stride);
    for (; row < end; ++row)
      float_tile<Value, 1, kColumns>(from + row * row_bytes, row_bytes, values, input.value_stride,
                                     count, k == 0, to + row, out_stride);
  }
  if constexpr (kColumns > 1)
    float_stretch<Value, kRows, kColumns / 2>(weight, row_bytes, input, k, begin, end, column, last,
                                              out, out_stride);
}

template <class Value>
void float_generate(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                    int64_t begin, int64_t end, float* out, int64_t out_stride, uint8_t*) {
  for (int64_t row = begin; row < end; row += kFloatRows)
    for (int64_t k = 0; k < input.width; k += kFloatStretch)
      float_stretch<Value, kFloatRows, kFloatColumns>(
          weight, row_bytes, input, k, row, end - row < kFloatRows ? end : row + kFloatRows, 0,
          input.columns, out, out_stride);
}

template <class Value>
void float_prompt(const uint8_t* weight, int64_t row_bytes, const LinearInput& input, int64_t begin,
                  int64_t end, float* out, int64_t out_stride, uint8_t*) {
  for (int64_t k = 0; k < input.width; k += kFloatStretch)
    float_stretch<Value, kFloatRows, kFloatColumns>(weight, row_bytes, input, k, begin, end, 0,
                                                    input.columns, out, out_stride);
}

}  // namespace ingot::INGOT_ISA
