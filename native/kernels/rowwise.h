// Kernels on one row of activations: norms, RoPE, activations, sums.
//
// Sums run over sixteen lanes in a fixed order, so a row's result depends on nothing
// but the row.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/tasks.h"
#include "simd/floats.h"

namespace ingot::INGOT_ISA {

using simd::F32x16;

// Calls body(i, whole vector) for each full sixteen and tail(i, n) for what remains.
template <class Body, class Tail>
inline void for_each_16(int64_t n, Body body, Tail tail) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) body(i);
  if (i < n) tail(i, n - i);
}

template <class Function>
inline void map_row(int64_t n, const float* x, float* out, Function function) {
  for_each_16(
      n, [&](int64_t i) { function(i, F32x16::load(x + i)).store(out + i); },
      [&](int64_t i, int64_t rest) {
        simd::store_part(out + i, function(i, simd::load_part(x + i, rest)), rest);
      });
}

// Four running vectors, so that one addition need not wait for the last.
template <class Function>
inline float sum_row(int64_t n, const float* x, Function function) {
  F32x16 total[4] = {F32x16::splat(0), F32x16::splat(0), F32x16::splat(0), F32x16::splat(0)};
  int64_t i = 0;
  for (; i + 64 <= n; i += 64)
    for (int part = 0; part < 4; ++part)
      total[part] = total[part] + function(F32x16::load(x + i + part * 16));
  for (int part = 0; i < n; i += 16, part = (part + 1) % 4) {
    float lanes[16] = {};
    const int64_t rest = n - i < 16 ? n - i : 16;
    function(simd::load_part(x + i, rest)).store(lanes);
    total[part] = total[part] + simd::load_part(lanes, rest);
  }
  return simd::sum((total[0] + total[1]) + (total[2] + total[3]));
}

// out = (x - center) / sqrt(mean of squares + epsilon) * weight + bias; bias may be null.
inline void scale_row(const float* x, float center, float squares, const float* weight,
                      const float* bias, int64_t n, float epsilon, float* out) {
  const F32x16 middle = F32x16::splat(center);
  const F32x16 scale = F32x16::splat(1.0f / std::sqrt(squares / static_cast<float>(n) + epsilon));
  map_row(n, x, out, [&](int64_t i, F32x16 v) {
    const auto at = [&](const float* p) {
      return n - i >= 16 ? F32x16::load(p + i) : simd::load_part(p + i, n - i);
    };
    const F32x16 scaled = (v - middle) * scale * at(weight);
    return bias ? scaled + at(bias) : scaled;
  });
}

inline void rms_norm(const float* x, const float* weight, const float* bias, int64_t n,
                     float epsilon, float* out) {
  const float squares = sum_row(n, x, [](F32x16 v) { return v * v; });
  scale_row(x, 0.0f, squares, weight, bias, n, epsilon, out);
}

inline void layer_norm(const float* x, const float* weight, const float* bias, int64_t n,
                       float epsilon, float* out) {
  const float mean = sum_row(n, x, [](F32x16 v) { return v; }) / static_cast<float>(n);
  const F32x16 center = F32x16::splat(mean);
  const float squares = sum_row(n, x, [&](F32x16 v) { return (v - center) * (v - center); });
  scale_row(x, mean, squares, weight, bias, n, epsilon, out);
}

// RoPE: rotates the first 2 * pairs elements of a head by (cos, sin) of its position. Pairs are
// adjacent elements (interleaved layout) or half the elements apart (half-split layout).
inline void rotate_head(float* head, int64_t pairs, bool interleaved, const float* cos,
                        const float* sin) {
  const int64_t step = interleaved ? 2 : 1, other = interleaved ? 1 : pairs;
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = head[i * step], b = head[i * step + other];
    head[i * step] = a * cos[i] - b * sin[i];
    head[i * step + other] = a * sin[i] + b * cos[i];
  }
}

inline constexpr float kSwigluLimit = 7.0f;

inline F32x16 activation(Activation kind, F32x16 x) {
  const F32x16 one = F32x16::splat(1.0f), half = F32x16::splat(0.5f);
  switch (kind) {
    case Activation::SILU:
      // Below -88.7 the divisor grows no more; nor must what is divided.
      return simd::max(F32x16::splat(-88.7f), x) / (one + simd::exp(F32x16::splat(0.0f) - x));
    case Activation::GELU_TANH: {
      const F32x16 cube = x * x * x;
      const F32x16 inner =
          (x + cube * F32x16::splat(0.044715f)) * F32x16::splat(0.79788456080286536f);
      return half * x * (one + simd::tanh(inner));
    }
    case Activation::GELU: {
      float lanes[16];
      x.store(lanes);
      for (float& lane : lanes) lane = 0.5f * lane * (1.0f + std::erf(lane * 0.70710678118654752f));
      return F32x16::load(lanes);
    }
    case Activation::RELU_SQUARED: {
      const F32x16 positive = simd::max(F32x16::splat(0.0f), x);
      return positive * positive;
    }
    case Activation::TANH:
      return simd::tanh(x);
    case Activation::SOFTPLUS: {
      // max(x, 0) + log(1 + e), e = exp(-|x|): twice the inverse hyperbolic tangent of s.
      const F32x16 positive = simd::max(F32x16::splat(0.0f), x);
      const F32x16 e = simd::exp(x - positive - positive);
      const F32x16 s = e / (e + F32x16::splat(2.0f)), square = s * s;
      F32x16 series = F32x16::splat(1.0f / 15);
      for (int divisor = 13; divisor > 0; divisor -= 2)
        series = simd::fma(series, square, F32x16::splat(1.0f / static_cast<float>(divisor)));
      return positive + (s + s) * series;
    }
    case Activation::SIGMOID:
      return one / (one + simd::exp(F32x16::splat(0.0f) - x));
    case Activation::RELU:
      return simd::max(F32x16::splat(0.0f), x);
    case Activation::IDENTITY:
      return x;
    case Activation::CLAMPED_SWIGLU: {
      const F32x16 limited = simd::min(F32x16::splat(kSwigluLimit), x);
      const F32x16 power = simd::exp(F32x16::splat(-1.702f) * limited);
      return simd::max(F32x16::splat(-52.1f), limited) / (one + power);  // as above
    }
  }
  return x;
}

// What an activated gate is multiplied by.
inline F32x16 gated(Activation kind, F32x16 up) {
  if (kind != Activation::CLAMPED_SWIGLU) return up;
  const F32x16 limited =
      simd::max(F32x16::splat(-kSwigluLimit), simd::min(F32x16::splat(kSwigluLimit), up));
  return limited + F32x16::splat(1.0f);
}

// out = activation(gate) * up, or activation(gate) where up is null.
inline void activate(Activation kind, const float* gate, const float* up, int64_t n, float* out) {
  map_row(n, gate, out, [&](int64_t i, F32x16 x) {
    const F32x16 y = activation(kind, x);
    if (!up) return y;
    return y * gated(kind, n - i >= 16 ? F32x16::load(up + i) : simd::load_part(up + i, n - i));
  });
}

// out = sum of weights[k] * rows[k], in order, + residual (may be null).
inline void mix_rows(const float* const* rows, const float* weights, int64_t count,
                     const float* residual, int64_t n, float* out) {
  map_row(n, rows[0], out, [&](int64_t i, F32x16 first) {
    const auto at = [&](const float* p) {
      return n - i >= 16 ? F32x16::load(p + i) : simd::load_part(p + i, n - i);
    };
    F32x16 mixed = first * F32x16::splat(weights[0]);
    for (int64_t k = 1; k < count; ++k)
      mixed = simd::fma(at(rows[k]), F32x16::splat(weights[k]), mixed);
    return residual ? mixed + at(residual) : mixed;
  });
}

inline void softcap(const float* x, int64_t n, float cap, float* out) {
  const F32x16 inverse = F32x16::splat(1.0f / cap), factor = F32x16::splat(cap);
  map_row(n, x, out, [&](int64_t, F32x16 v) { return factor * simd::tanh(v * inverse); });
}

// slope * x + rise * x^2 above 0, slope * x + fall * (exp(x) - 1 - x) below
inline void xielu(const float* x, int64_t n, float rise, float fall, float slope, float* out) {
  const F32x16 zero = F32x16::splat(0.0f), one = F32x16::splat(1.0f);
  const F32x16 above = F32x16::splat(rise), below = F32x16::splat(fall),
               through = F32x16::splat(slope);
  map_row(n, x, out, [&](int64_t, F32x16 v) {
    const F32x16 high = simd::max(zero, v), low = simd::min(zero, v);
    return above * high * high + below * (simd::exp(low) - one - low) + through * v;
  });
}

inline void exponentials(const float* x, int64_t n, float* out) {
  map_row(n, x, out, [](int64_t, F32x16 v) { return simd::exp(v); });
}

}  // namespace ingot::INGOT_ISA
