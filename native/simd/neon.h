// simd.h's operations for NEON, as every 64-bit ARM has it. A slice takes two registers.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "simd/half.h"

namespace ingot::INGOT_ISA::simd {

struct U8x16 {
  uint8x16_t v;
};
struct U8x32 {
  uint8x16_t lo, hi;
};

inline U8x16 load16(const void* p) { return {vld1q_u8(static_cast<const uint8_t*>(p))}; }
inline U8x32 load32(const void* p) {
  const auto* bytes = static_cast<const uint8_t*>(p);
  return {vld1q_u8(bytes), vld1q_u8(bytes + 16)};
}
inline void store32(void* p, U8x32 v) {
  vst1q_u8(static_cast<uint8_t*>(p), v.lo);
  vst1q_u8(static_cast<uint8_t*>(p) + 16, v.hi);
}
inline U8x32 join(U8x16 lo, U8x16 hi) { return {lo.v, hi.v}; }
inline U8x32 from_words(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  const auto two = [](uint64_t low, uint64_t high) {
    return vcombine_u8(vcreate_u8(low), vcreate_u8(high));
  };
  return {two(a, b), two(c, d)};
}
inline U8x16 low_half(U8x32 v) { return {v.lo}; }
inline U8x16 high_half(U8x32 v) { return {v.hi}; }
inline U8x32 swap_middle_quarters(U8x32 v) {
  const uint64x2_t lo = vreinterpretq_u64_u8(v.lo), hi = vreinterpretq_u64_u8(v.hi);
  return {vreinterpretq_u8_u64(vzip1q_u64(lo, hi)), vreinterpretq_u8_u64(vzip2q_u64(lo, hi))};
}
inline U8x32 splat(uint8_t byte) { return {vdupq_n_u8(byte), vdupq_n_u8(byte)}; }

inline U8x32 operator&(U8x32 a, U8x32 b) { return {vandq_u8(a.lo, b.lo), vandq_u8(a.hi, b.hi)}; }
inline U8x32 operator|(U8x32 a, U8x32 b) { return {vorrq_u8(a.lo, b.lo), vorrq_u8(a.hi, b.hi)}; }
inline U8x32 operator^(U8x32 a, U8x32 b) { return {veorq_u8(a.lo, b.lo), veorq_u8(a.hi, b.hi)}; }
inline U8x32 operator+(U8x32 a, U8x32 b) { return {vaddq_u8(a.lo, b.lo), vaddq_u8(a.hi, b.hi)}; }
inline U8x32 operator-(U8x32 a, U8x32 b) { return {vsubq_u8(a.lo, b.lo), vsubq_u8(a.hi, b.hi)}; }

template <int shift>
inline U8x32 shift_right(U8x32 v) {
  if constexpr (shift == 0) {
    return v;
  } else {
    return {vshrq_n_u8(v.lo, shift), vshrq_n_u8(v.hi, shift)};
  }
}
template <int shift>
inline U8x32 shift_left(U8x32 v) {
  return {vshlq_n_u8(v.lo, shift), vshlq_n_u8(v.hi, shift)};
}

template <int from, int to>
inline U8x32 move_bit(U8x32 v) {
  if constexpr (from < to) {
    return shift_left<to - from>(v) & splat(1 << to);
  } else {
    return shift_right<from - to>(v) & splat(1 << to);
  }
}
inline U8x32 nibbles(U8x16 v) { return {vandq_u8(v.v, vdupq_n_u8(15)), vshrq_n_u8(v.v, 4)}; }

inline U8x32 lookup16(U8x16 table, U8x32 index) {
  return {vqtbl1q_u8(table.v, index.lo), vqtbl1q_u8(table.v, index.hi)};
}

inline U8x32 at_least(U8x32 v, uint8_t bound) {
  return {vcgeq_u8(v.lo, vdupq_n_u8(bound)), vcgeq_u8(v.hi, vdupq_n_u8(bound))};
}

inline U8x32 spread_bits(uint32_t bits) {
  // Each lane gets the byte that holds its bit, and tests that bit.
  const uint8x16_t bytes = vreinterpretq_u8_u32(vdupq_n_u32(bits));
  const uint8x16_t bit_of_lane = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  const auto half = [&](uint64_t low, uint64_t high) {
    const uint8x16_t byte_of_lane = vcombine_u8(vcreate_u8(low), vcreate_u8(high));
    return vtstq_u8(vqtbl1q_u8(bytes, byte_of_lane), bit_of_lane);
  };
  return {half(0, 0x0101010101010101), half(0x0202020202020202, 0x0303030303030303)};
}

inline U8x32 negate_where(U8x32 v, uint32_t bits) {
  const U8x32 mask = spread_bits(bits);
  return (v ^ mask) - mask;
}

inline U8x32 four_of_each(const uint8_t* p) {
  const uint8x16_t bytes = vcombine_u8(vld1_u8(p), vld1_u8(p));
  const auto half = [&](uint64_t low, uint64_t high) {
    return vqtbl1q_u8(bytes, vcombine_u8(vcreate_u8(low), vcreate_u8(high)));
  };
  return {half(0x0101010100000000, 0x0303030302020202),
          half(0x0505050504040404, 0x0707070706060606)};
}

inline U8x32 load_odd_words(const uint8_t* p) {
  const auto odd = [](const uint8_t* q) {
    const uint32x4_t low = vreinterpretq_u32_u8(vld1q_u8(q));
    return vreinterpretq_u8_u32(vuzp2q_u32(low, vreinterpretq_u32_u8(vld1q_u8(q + 16))));
  };
  return {odd(p), odd(p + 32)};
}
inline U8x32 load_odd_bytes(const uint8_t* p) {
  return {vuzp2q_u8(vld1q_u8(p), vld1q_u8(p + 16)), vuzp2q_u8(vld1q_u8(p + 32), vld1q_u8(p + 48))};
}
inline U8x32 spread_sevens(U8x32 v) {
  const auto spread = [](uint8x16_t half) {
    const uint32x4_t words = vreinterpretq_u32_u8(half);
    const auto field = [](uint32x4_t moved, int at) {
      return vandq_u32(moved, vdupq_n_u32(0x7fu << (8 * at)));
    };
    const uint32x4_t low = vorrq_u32(field(words, 0), field(vshlq_n_u32(words, 1), 1));
    return vreinterpretq_u8_u32(vorrq_u32(
        low, vorrq_u32(field(vshlq_n_u32(words, 2), 2), field(vshlq_n_u32(words, 3), 3))));
  };
  return {spread(v.lo), spread(v.hi)};
}
inline uint64_t top_nibbles(U8x32 v) {
  const uint16x4_t lo = vmovn_u32(vshrq_n_u32(vreinterpretq_u32_u8(v.lo), 28));
  const uint16x4_t hi = vmovn_u32(vshrq_n_u32(vreinterpretq_u32_u8(v.hi), 28));
  return vget_lane_u64(vreinterpret_u64_u8(vmovn_u16(vcombine_u16(lo, hi))), 0);
}

inline U8x32 gather_eights(const uint64_t* a, const uint64_t* b, const uint64_t* c,
                           const uint64_t* d) {
  const auto two = [](const uint64_t* p, const uint64_t* q) {
    return vreinterpretq_u8_u64(vcombine_u64(vld1_u64(p), vld1_u64(q)));
  };
  return {two(a, b), two(c, d)};
}
template <class At>
inline U8x32 gather_fours(At at) {
  const auto four = [&](int i) {
    uint32x4_t v = vdupq_n_u32(*at(i));
    v = vld1q_lane_u32(at(i + 1), v, 1);
    v = vld1q_lane_u32(at(i + 2), v, 2);
    return vreinterpretq_u8_u32(vld1q_lane_u32(at(i + 3), v, 3));
  };
  return {four(0), four(4)};
}

struct Floats {
  float32x4_t lo, hi;
};
inline Floats splat_float(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
inline Floats multiply(Floats a, Floats b) {
  return {vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)};
}
inline Floats add(Floats a, Floats b) { return {vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)}; }
inline Floats operator-(Floats a) { return {vnegq_f32(a.lo), vnegq_f32(a.hi)}; }
inline void store(float* p, Floats v) {
  vst1q_f32(p, v.lo);
  vst1q_f32(p + 4, v.hi);
}

// Eight words as floats.
inline Floats floats_of(int16x8_t words) {
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_high_s16(words))};
}

// Calls body(first_lane, floats): the signed lanes as vectors of floats, in order.
template <class Body>
inline void for_each_float_vector(U8x32 v, Body body) {
  const int8x16_t lo = vreinterpretq_s8_u8(v.lo), hi = vreinterpretq_s8_u8(v.hi);
  body(0, floats_of(vmovl_s8(vget_low_s8(lo))));
  body(8, floats_of(vmovl_high_s8(lo)));
  body(16, floats_of(vmovl_s8(vget_low_s8(hi))));
  body(24, floats_of(vmovl_high_s8(hi)));
}

inline void store_scaled(float* out, U8x32 v, float lo, float hi) {
  for_each_float_vector(v, [&](int first, Floats q) {
    store(out + first, multiply(splat_float(first < 16 ? lo : hi), q));
  });
}
// Two roundings, as the formats define it: never a fused multiply-add.
inline void store_scaled(float* out, U8x32 v, float lo, float hi, float min_lo, float min_hi) {
  for_each_float_vector(v, [&](int first, Floats q) {
    const Floats scaled = multiply(splat_float(first < 16 ? lo : hi), q);
    store(out + first, add(scaled, splat_float(first < 16 ? min_lo : min_hi)));
  });
}

inline float half_to_float(uint16_t half) {
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))), 0);
}

// In assembly, because gcc takes a function that only prefetches for one that does nothing.
inline void prefetch(const void* p) { __asm__ volatile("prfm pldl2keep, [%0]" : : "r"(p)); }
inline void prefetch_near(const void* p) { __asm__ volatile("prfm pldl1keep, [%0]" : : "r"(p)); }

}  // namespace ingot::INGOT_ISA::simd
