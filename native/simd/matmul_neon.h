// Matrix products of bytes with NEON's i8mm (smmla): 2 rows x 8 times 8 x 2 columns, added to a
// register of 2 x 2 sums. One instruction makes twice the products of a dot product.
//
//     Rows8               eight signed bytes of every row, two rows a register
//     Columns16           sixteen signed bytes of two columns, eight by eight
//     Ints2x2 Floats2x2   a number of every row and of two columns: row by row, column by column
#pragma once

#include "simd/vector_neon.h"

namespace ingot::INGOT_ISA::simd {

inline constexpr int kRowPairs = kLanes / 2;

struct Rows8 {
  int8x16_t v[kRowPairs];
};
struct Columns16 {
  int8x16_t v[2];
};
struct Ints2x2 {
  int32x4_t v[kRowPairs];
};
struct Floats2x2 {
  float32x4_t v[kRowPairs];
};

// Of eight bytes of every row: the first four, and the others.
inline Rows8 join_quads(Fours first, Fours second) {
  const auto low = [](uint8x16_t a, uint8x16_t b) {
    return vreinterpretq_s8_u32(vzip1q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
  };
  const auto high = [](uint8x16_t a, uint8x16_t b) {
    return vreinterpretq_s8_u32(vzip2q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
  };
  return {{low(first.lo, second.lo), high(first.lo, second.lo), low(first.hi, second.hi),
           high(first.hi, second.hi)}};
}
inline Rows8 load_rows8(const int8_t* p) {
  return {{vld1q_s8(p), vld1q_s8(p + 16), vld1q_s8(p + 32), vld1q_s8(p + 48)}};
}
inline void store_rows8(int8_t* p, Rows8 rows) {
  for (int i = 0; i < kRowPairs; ++i) vst1q_s8(p + i * 16, rows.v[i]);
}
inline Columns16 load_columns16(const int8_t* first, const int8_t* second) {
  const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(first));
  const int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(second));
  return {{vreinterpretq_s8_s64(vzip1q_s64(a, b)), vreinterpretq_s8_s64(vzip2q_s64(a, b))}};
}

inline Ints2x2 zero_ints2x2() {
  return {{vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)}};
}
// Adds the products of eight bytes of every row and of the first or the last eight of the columns.
template <int half>
inline Ints2x2 add_products(Ints2x2 sums, Rows8 rows, Columns16 columns) {
  return {{vmmlaq_s32(sums.v[0], rows.v[0], columns.v[half]),
           vmmlaq_s32(sums.v[1], rows.v[1], columns.v[half]),
           vmmlaq_s32(sums.v[2], rows.v[2], columns.v[half]),
           vmmlaq_s32(sums.v[3], rows.v[3], columns.v[half])}};
}

inline Floats2x2 join_columns(Floats first, Floats second) {
  return {{vzip1q_f32(first.lo, second.lo), vzip2q_f32(first.lo, second.lo),
           vzip1q_f32(first.hi, second.hi), vzip2q_f32(first.hi, second.hi)}};
}
inline Floats first_column(Floats2x2 v) {
  return {vuzp1q_f32(v.v[0], v.v[1]), vuzp1q_f32(v.v[2], v.v[3])};
}
inline Floats second_column(Floats2x2 v) {
  return {vuzp2q_f32(v.v[0], v.v[1]), vuzp2q_f32(v.v[2], v.v[3])};
}
inline Floats2x2 load_floats2x2(const float* p) {
  return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
inline void store(float* p, Floats2x2 v) {
  for (int i = 0; i < kRowPairs; ++i) vst1q_f32(p + i * 4, v.v[i]);
}
// total + sums * (factor * scale of the column), in two roundings as everywhere.
inline Floats2x2 add_scaled(Floats2x2 total, Ints2x2 sums, Floats2x2 factor, float first,
                            float second) {
  const float32x2_t both = vset_lane_f32(second, vdup_n_f32(first), 1);
  const float32x4_t scale = vcombine_f32(both, both);
  for (int i = 0; i < kRowPairs; ++i)
    total.v[i] = vfmaq_f32(total.v[i], vcvtq_f32_s32(sums.v[i]), vmulq_f32(factor.v[i], scale));
  return total;
}
inline Floats2x2 multiply_add(Floats2x2 factor, float first, float second, Floats2x2 total) {
  const float32x2_t both = vset_lane_f32(second, vdup_n_f32(first), 1);
  const float32x4_t x = vcombine_f32(both, both);
  for (int i = 0; i < kRowPairs; ++i) total.v[i] = vfmaq_f32(total.v[i], factor.v[i], x);
  return total;
}

}  // namespace ingot::INGOT_ISA::simd
