// The passes over a whole row of logits that decide what sampling costs. Each works in
// blocks of kRowBlock values and in kLanes running results inside a block, in one order
// whatever the vector width, so all instruction sets give the same bits.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "sampling/portable_math.h"
#include "sampling/row_block.h"

namespace ingot::INGOT_ISA {

inline constexpr int kLanes = 16;
inline constexpr int kFloatParts = kLanes * sizeof(float) / kVectorBytes;
inline constexpr int kDoubleParts = kLanes * sizeof(double) / kVectorBytes;
inline constexpr int kDoublesInPart = kLanes / kDoubleParts;
inline constexpr float kRowInfinity = std::numeric_limits<float>::infinity();

using Floats = float __attribute__((vector_size(kVectorBytes)));
using Ints = int32_t __attribute__((vector_size(kVectorBytes)));
using HalfFloats = float __attribute__((vector_size(kVectorBytes / 2)));

template <class Vector, class Value>
INGOT_INLINE Vector load(const Value* values) {
  Vector vector;
  std::memcpy(&vector, values, sizeof(vector));
  return vector;
}

// One part of kLanes floats, as doubles.
INGOT_INLINE Doubles load_wide(const float* lanes, int part) {
  return __builtin_convertvector(load<HalfFloats>(lanes + part * kDoublesInPart), Doubles);
}

// Calls body(pointer to kLanes values) over a row; what is missing at the end is -inf.
template <class Body>
INGOT_INLINE void for_lanes(const float* values, int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(values + i);
  if (i == count) return;
  float rest[kLanes];
  for (int64_t j = 0; j < kLanes; ++j) rest[j] = i + j < count ? values[i + j] : -kRowInfinity;
  body(rest);
}

// The sum of kLanes running sums: in pairs, always the same ones.
INGOT_INLINE double sum_lanes(const Doubles (&parts)[kDoubleParts]) {
  double lanes[kLanes];
  std::memcpy(lanes, parts, sizeof(lanes));
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

INGOT_INLINE int64_t block_length(int64_t begin, int64_t count) {
  return count - begin < kRowBlock ? count - begin : kRowBlock;
}

// The largest value of each block, [blocks of count]; false if a value is NaN or +inf.
static bool row_maxima(const float* row, int64_t count, float* maxima) {
  Ints wrong{};
  for (int64_t begin = 0; begin < count; begin += kRowBlock) {
    Floats largest[kFloatParts];
    for (Floats& part : largest) part = -kRowInfinity - Floats{};
    for_lanes(row + begin, block_length(begin, count), [&](const float* lanes) {
      for (int part = 0; part < kFloatParts; ++part) {
        const Floats values = load<Floats>(lanes + part * (kLanes / kFloatParts));
        largest[part] = values > largest[part] ? values : largest[part];
        wrong |= ~(values < kRowInfinity);
      }
    });
    float lanes[kLanes], most = -kRowInfinity;
    std::memcpy(lanes, largest, sizeof(lanes));
    for (const float lane : lanes) most = lane > most ? lane : most;
    *maxima++ = most;
  }
  int32_t all[sizeof(Ints) / sizeof(int32_t)], any = 0;
  std::memcpy(all, &wrong, sizeof(all));
  for (const int32_t lane : all) any |= lane;
  return any == 0;
}

// For each block the sums of exp(v - shift) and of exp(v - shift) * (v - shift).
static void row_exponentials(const float* row, int64_t count, float shift, double* sums,
                             double* weighted) {
  for (int64_t begin = 0; begin < count; begin += kRowBlock) {
    Doubles sum[kDoubleParts] = {}, weight[kDoubleParts] = {};
    for_lanes(row + begin, block_length(begin, count), [&](const float* lanes) {
      for (int part = 0; part < kDoubleParts; ++part) {
        const Doubles x = load_wide(lanes, part) - static_cast<double>(shift);
        const Doubles y = portable_exp(x);
        sum[part] += y;
        weight[part] += keep_if(y > 0.0, y * x);
      }
    });
    *sums++ = sum_lanes(sum);
    *weighted++ = sum_lanes(weight);
  }
}

// How many values are above -inf, and the sums of (v - shift) and (v - shift)^2 over these.
static RowMoments row_moments(const float* row, int64_t count, float shift) {
  Doubles number[kDoubleParts] = {}, sum[kDoubleParts] = {}, squares[kDoubleParts] = {};
  for_lanes(row, count, [&](const float* lanes) {
    for (int part = 0; part < kDoubleParts; ++part) {
      const Doubles values = load_wide(lanes, part);
      const Longs valid = values > -static_cast<double>(kRowInfinity);
      const Doubles x = keep_if(valid, values - static_cast<double>(shift));
      number[part] += keep_if(valid, splat(1.0));
      sum[part] += x;
      squares[part] += x * x;
    }
  });
  return {sum_lanes(number), sum_lanes(sum), sum_lanes(squares)};
}

// out[i] = function(x[i]); `out` may be `x`.
template <class Function>
INGOT_INLINE void map_values(const double* x, int64_t count, double* out, Function function) {
  constexpr int64_t kStep = sizeof(Doubles) / sizeof(double);
  for (int64_t i = 0; i < count; i += kStep) {
    const int64_t length = count - i < kStep ? count - i : kStep;
    Doubles values = splat(1.0);
    std::memcpy(&values, x + i, static_cast<size_t>(length) * sizeof(double));
    function(values);
    std::memcpy(out + i, &values, static_cast<size_t>(length) * sizeof(double));
  }
}

static void exp_values(const double* x, int64_t count, double* out) {
  map_values(x, count, out, [](Doubles& values) { values = portable_exp(values); });
}

static void log_values(const double* x, int64_t count, double* out) {
  map_values(x, count, out, [](Doubles& values) { values = portable_log(values); });
}

}  // namespace ingot::INGOT_ISA
