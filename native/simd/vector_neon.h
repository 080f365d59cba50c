// vector.h's operations for NEON. A vector is two registers, so there are as many as AVX2 has, of
// the same width.
//
// Pairs are kept apart: the first words of all lanes in one register, the second in another. So
// "multiply long and add", which takes eight neighbours to eight lanes, adds up a pair in two
// steps. Loads and stores that take pairs apart cost no more than others.
#pragma once

#include <cstdint>

#include "simd/neon.h"

namespace ingot::INGOT_ISA::simd {

inline constexpr int kLanes = 8;
struct Ints {
  int32x4_t lo, hi;
};
struct Pairs {
  int16x8_t first, second;
};
struct Words {
  Pairs v[2];
};

inline Floats zero_floats() { return splat_float(0); }
inline Floats load_floats(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
inline Floats floats_of_halves(uint16x8_t v) {
  const float16x8_t halves = vreinterpretq_f16_u16(v);
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}
inline Floats load_halves(const uint8_t* p) {
  return floats_of_halves(vreinterpretq_u16_u8(vld1q_u8(p)));
}
inline Floats load_bfloat16s(const uint8_t* p) {
  const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(p));
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)),
          vreinterpretq_f32_u32(vshll_high_n_u16(v, 16))};
}
inline Floats load_halves_at(const uint8_t* p, int64_t stride) {
  const auto at = [&](int i) { return reinterpret_cast<const uint16_t*>(p + i * stride); };
  uint16x8_t v = vdupq_n_u16(*at(0));
  v = vld1q_lane_u16(at(1), v, 1);
  v = vld1q_lane_u16(at(2), v, 2);
  v = vld1q_lane_u16(at(3), v, 3);
  v = vld1q_lane_u16(at(4), v, 4);
  v = vld1q_lane_u16(at(5), v, 5);
  v = vld1q_lane_u16(at(6), v, 6);
  return floats_of_halves(vld1q_lane_u16(at(7), v, 7));
}
struct ByteFloats {
  Floats v[2];
};
inline ByteFloats signed_floats(U8x16 bytes) {
  const int8x16_t v = vreinterpretq_s8_u8(bytes.v);
  return {{floats_of(vmovl_s8(vget_low_s8(v))), floats_of(vmovl_high_s8(v))}};
}
inline Floats multiply_add(Floats a, Floats b, Floats c) {
  return {vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}

inline float sum(Floats v) {
  const float32x4_t quarter = vaddq_f32(v.lo, v.hi);
  return vpadds_f32(vadd_f32(vget_low_f32(quarter), vget_high_f32(quarter)));
}

// As sum() does, but four vectors at once.
inline float32x4_t four_sums(const Floats* v) {
  const auto quarter = [&](int i) { return vreinterpretq_f64_f32(vaddq_f32(v[i].lo, v[i].hi)); };
  const auto two = [&](int i) {
    return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(quarter(i), quarter(i + 1))),
                     vreinterpretq_f32_f64(vzip2q_f64(quarter(i), quarter(i + 1))));
  };
  return vpaddq_f32(two(0), two(2));
}
inline Floats sums(const Floats (&v)[8]) { return {four_sums(v), four_sums(v + 4)}; }

inline Ints zero_ints() { return {vdupq_n_s32(0), vdupq_n_s32(0)}; }
inline Ints splat_int(int32_t n) { return {vdupq_n_s32(n), vdupq_n_s32(n)}; }
inline Ints add(Ints a, Ints b) { return {vaddq_s32(a.lo, b.lo), vaddq_s32(a.hi, b.hi)}; }
inline Ints larger(Ints a, Ints b) { return {vmaxq_s32(a.lo, b.lo), vmaxq_s32(a.hi, b.hi)}; }
inline Ints magnitude_bits(Floats v) {
  return {vreinterpretq_s32_f32(vabsq_f32(v.lo)), vreinterpretq_s32_f32(vabsq_f32(v.hi))};
}
inline void store_ints(int32_t* p, Ints v) {
  vst1q_s32(p, v.lo);
  vst1q_s32(p + 4, v.hi);
}
inline Ints round_to_ints(Floats v) { return {vcvtnq_s32_f32(v.lo), vcvtnq_s32_f32(v.hi)}; }
inline Floats to_floats(Ints v) { return {vcvtq_f32_s32(v.lo), vcvtq_f32_s32(v.hi)}; }
inline int32_t sum(Ints v) { return vaddvq_s32(vaddq_s32(v.lo, v.hi)); }
inline int16x8_t low_words(Ints v) { return vmovn_high_s32(vmovn_s32(v.lo), v.hi); }
inline void store_words(int16_t* p, Ints v) { vst1q_s16(p, low_words(v)); }
inline void store_bytes(int8_t* p, Ints v) { vst1_s8(p, vmovn_s16(low_words(v))); }

inline Pairs load_pairs(const int16_t* p) {
  const int16x8x2_t v = vld2q_s16(p);
  return {v.val[0], v.val[1]};
}
inline void store_pairs(int16_t* p, Pairs v) {
  const int16x8x2_t both{{v.first, v.second}};  // apart: some compilers have macros for intrinsics
  vst2q_s16(p, both);
}
inline Pairs splat_pair(const int16_t* p) {
  const int16x8x2_t v = vld2q_dup_s16(p);
  return {v.val[0], v.val[1]};
}
inline Ints dot(Ints sum, Pairs a, Pairs b) {
  sum.lo = vmlal_s16(sum.lo, vget_low_s16(a.first), vget_low_s16(b.first));
  sum.hi = vmlal_high_s16(sum.hi, a.first, b.first);
  sum.lo = vmlal_s16(sum.lo, vget_low_s16(a.second), vget_low_s16(b.second));
  sum.hi = vmlal_high_s16(sum.hi, a.second, b.second);
  return sum;
}

// Four bytes of every lane, and four that all lanes meet.
using Fours = U8x32;
inline Fours load_fours(const uint8_t* p) { return load32(p); }
inline void store_fours(uint8_t* p, Fours v) { store32(p, v); }
inline Fours as_fours(const U8x32 (&v)[1]) { return v[0]; }
template <int i>
struct SplatFour {
  int8x16_t v;  // lane i % 4 of these
};
template <int i>
inline SplatFour<i> splat_four(const int8_t* p) {
  return {vld1q_s8(p + i / 4 * 16)};
}

inline constexpr int kMostByte = 127;  // bytes of both sides are signed
inline constexpr bool kTakesNegativeBytes = true;
#if defined(__ARM_FEATURE_DOTPROD)
struct Parts {};
template <int most, int i, int quads>
inline void add_quad(Ints& sum, Parts&, Fours weights, SplatFour<i> inputs) {
  sum.lo = vdotq_laneq_s32(sum.lo, vreinterpretq_s8_u8(weights.lo), inputs.v, i % 4);
  sum.hi = vdotq_laneq_s32(sum.hi, vreinterpretq_s8_u8(weights.hi), inputs.v, i % 4);
}
#else
// Products of bytes are added in 16 bits as long as they fit, then in 32. Inputs are at most 127.
struct Parts {
  int16x8_t v[4];  // of two rows each
};
inline int32x4_t sum_parts(int16x8_t low, int16x8_t high) {
  return vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
}
template <int most, int i, int quads>
inline void add_quad(Ints& sum, Parts& part, Fours weights, SplatFour<i> inputs) {
  constexpr int kAtOnce = INT16_MAX / (127 * most);
  static_assert(kAtOnce > 0);
  const int8x16_t x = vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(inputs.v), i % 4));
  const int8x16_t lo = vreinterpretq_s8_u8(weights.lo), hi = vreinterpretq_s8_u8(weights.hi);
  if constexpr (i % kAtOnce == 0) {
    part = {{vmull_s8(vget_low_s8(lo), vget_low_s8(x)), vmull_high_s8(lo, x),
             vmull_s8(vget_low_s8(hi), vget_low_s8(x)), vmull_high_s8(hi, x)}};
  } else {
    part = {{vmlal_s8(part.v[0], vget_low_s8(lo), vget_low_s8(x)), vmlal_high_s8(part.v[1], lo, x),
             vmlal_s8(part.v[2], vget_low_s8(hi), vget_low_s8(x)),
             vmlal_high_s8(part.v[3], hi, x)}};
  }
  if constexpr (i % kAtOnce == kAtOnce - 1 || i == quads - 1)
    sum = add(sum, {sum_parts(part.v[0], part.v[1]), sum_parts(part.v[2], part.v[3])});
}
#endif

template <class Function>
inline Pairs each_plane(Pairs v, Function function) {
  return {function(v.first), function(v.second)};
}
template <class Function>
inline Words each_plane(Words w, Function function) {
  return {{each_plane(w.v[0], function), each_plane(w.v[1], function)}};
}
inline Words widen(U8x32 v) {
  const auto half = [](uint8x16_t bytes) -> Pairs {
    const int16x8_t both = vreinterpretq_s16_u8(bytes);
    return {vshrq_n_s16(vshlq_n_s16(both, 8), 8), vshrq_n_s16(both, 8)};
  };
  return {{half(v.lo), half(v.hi)}};
}
inline Words widen_unsigned(U8x32 v) {
  const auto half = [](uint8x16_t bytes) -> Pairs {
    const uint16x8_t both = vreinterpretq_u16_u8(bytes);
    return {vreinterpretq_s16_u16(vandq_u16(both, vdupq_n_u16(0xff))),
            vreinterpretq_s16_u16(vshrq_n_u16(both, 8))};
  };
  return {{half(v.lo), half(v.hi)}};
}
inline Words load_two_words(const int16_t* p, const int16_t* q) {
  return {{load_pairs(p), load_pairs(q)}};
}
inline Words load_words(const int16_t* p) { return load_two_words(p, p + 16); }
inline void store_words(int16_t* p, Words w) {
  store_pairs(p, w.v[0]);
  store_pairs(p + 16, w.v[1]);
}

struct GroupScales {
  int16x8_t v[2];
};
inline void set_group_scales(GroupScales& scales, uint64_t first, uint64_t last) {
  scales = {{vmovl_s8(vcreate_s8(first)), vmovl_s8(vcreate_s8(last))}};
}
template <int g>
inline Pairs splat_scale(const GroupScales& scales) {
  const int16x8_t all = vdupq_laneq_s16(scales.v[g / 8], g % 8);
  return {all, all};
}
template <int g>
inline Words splat_group(const GroupScales& scales) {
  return {{splat_scale<g>(scales), splat_scale<g>(scales)}};
}
template <int g>
inline Words splat_two_groups(const GroupScales& scales) {
  return {{splat_scale<g>(scales), splat_scale<g + 1>(scales)}};
}
inline Pairs scale(Pairs w, Pairs v) {
  return {vmulq_s16(w.first, v.first), vmulq_s16(w.second, v.second)};
}
inline Words scale(Words w, Words v) { return {{scale(w.v[0], v.v[0]), scale(w.v[1], v.v[1])}}; }
inline Words keep(Words w, int16_t m) {
  return each_plane(w, [&](int16x8_t plane) { return vandq_s16(plane, vdupq_n_s16(m)); });
}
inline Pairs join_bits(Pairs w, Pairs v) {
  return {vorrq_s16(w.first, v.first), vorrq_s16(w.second, v.second)};
}
inline Words merge(Words w, Words v, int16_t m) {
  const Words kept = keep(v, m);
  return {{join_bits(w.v[0], kept.v[0]), join_bits(w.v[1], kept.v[1])}};
}
inline Words subtract(Words w, int16_t n) {
  return each_plane(w, [&](int16x8_t plane) { return vsubq_s16(plane, vdupq_n_s16(n)); });
}
template <int n>
inline Words shift_right(Words w) {
  if constexpr (n == 0) {
    return w;
  } else {
    return each_plane(w, [](int16x8_t plane) {
      return vreinterpretq_s16_u16(vshrq_n_u16(vreinterpretq_u16_s16(plane), n));
    });
  }
}
template <int n>
inline Words shift_left(Words w) {
  return each_plane(w, [](int16x8_t plane) { return vshlq_n_s16(plane, n); });
}

struct HalfSums {
  Ints lo, hi;
};
struct HalfFactors {
  float lo, hi;
};
inline HalfSums zero_half_sums() { return {zero_ints(), zero_ints()}; }
inline HalfSums dot_halves(HalfSums sums, Words w, Words v) {
  return {dot(sums.lo, w.v[0], v.v[0]), dot(sums.hi, w.v[1], v.v[1])};
}
inline HalfFactors load_half_factors(const float* p) { return {p[0], p[1]}; }
inline Floats add_scaled(Floats total, HalfSums sums, HalfFactors factors) {
  return multiply_add(to_floats(sums.hi), splat_float(factors.hi),
                      multiply_add(to_floats(sums.lo), splat_float(factors.lo), total));
}

// Four registers of four 32-bit lanes.
inline void transpose_four(uint32x4_t& a, uint32x4_t& b, uint32x4_t& c, uint32x4_t& d) {
  const auto eights = [](uint32x4_t v) { return vreinterpretq_u64_u32(v); };
  const auto fours = [](uint64x2_t v) { return vreinterpretq_u32_u64(v); };
  const uint64x2_t ab0 = eights(vtrn1q_u32(a, b)), ab1 = eights(vtrn2q_u32(a, b));
  const uint64x2_t cd0 = eights(vtrn1q_u32(c, d)), cd1 = eights(vtrn2q_u32(c, d));
  a = fours(vzip1q_u64(ab0, cd0));
  b = fours(vzip1q_u64(ab1, cd1));
  c = fours(vzip2q_u64(ab0, cd0));
  d = fours(vzip2q_u64(ab1, cd1));
}
// Eight vectors of eight 32-bit lanes. `take` gives the registers of one, `give` sets them.
template <class Vector, class Take, class Give>
inline void transpose_eight(Vector (&row)[8], Take take, Give give) {
  uint32x4_t lo[8], hi[8];
  for (int i = 0; i < 8; ++i) take(row[i], lo[i], hi[i]);
  for (int i = 0; i < 8; i += 4) {
    transpose_four(lo[i], lo[i + 1], lo[i + 2], lo[i + 3]);
    transpose_four(hi[i], hi[i + 1], hi[i + 2], hi[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    give(row[i], lo[i], lo[i + 4]);
    give(row[i + 4], hi[i], hi[i + 4]);
  }
}
inline void transpose(Pairs (&row)[8]) {
  const auto halves = [](uint32x4_t v) { return vreinterpretq_s16_u32(v); };
  transpose_eight(
      row,
      [](const Pairs& v, uint32x4_t& lo, uint32x4_t& hi) {
        lo = vreinterpretq_u32_s16(vzip1q_s16(v.first, v.second));
        hi = vreinterpretq_u32_s16(vzip2q_s16(v.first, v.second));
      },
      [&](Pairs& v, uint32x4_t lo, uint32x4_t hi) {
        v = {vuzp1q_s16(halves(lo), halves(hi)), vuzp2q_s16(halves(lo), halves(hi))};
      });
}
inline void transpose(Ints (&row)[8]) {
  transpose_eight(
      row,
      [](const Ints& v, uint32x4_t& lo, uint32x4_t& hi) {
        lo = vreinterpretq_u32_s32(v.lo);
        hi = vreinterpretq_u32_s32(v.hi);
      },
      [](Ints& v, uint32x4_t lo, uint32x4_t hi) {
        v = {vreinterpretq_s32_u32(lo), vreinterpretq_s32_u32(hi)};
      });
}
inline void transpose(Floats (&row)[8]) {
  transpose_eight(
      row,
      [](const Floats& v, uint32x4_t& lo, uint32x4_t& hi) {
        lo = vreinterpretq_u32_f32(v.lo);
        hi = vreinterpretq_u32_f32(v.hi);
      },
      [](Floats& v, uint32x4_t lo, uint32x4_t hi) {
        v = {vreinterpretq_f32_u32(lo), vreinterpretq_f32_u32(hi)};
      });
}
inline void transpose(U8x32 (&row)[8]) {
  transpose_eight(
      row,
      [](const U8x32& v, uint32x4_t& lo, uint32x4_t& hi) {
        lo = vreinterpretq_u32_u8(v.lo);
        hi = vreinterpretq_u32_u8(v.hi);
      },
      [](U8x32& v, uint32x4_t lo, uint32x4_t hi) {
        v = {vreinterpretq_u8_u32(lo), vreinterpretq_u8_u32(hi)};
      });
}

}  // namespace ingot::INGOT_ISA::simd
