// FloatLanes<n>: n floats side by side, for code that does the same thing to n
// independent problems at once.
//
// The encoders put one group of weights in each lane. A sum over a group is then a
// plain loop, in the order of its weights, whatever the width of the registers: every
// instruction set gives the same bits. Built on the compiler's vector extension
// (gcc, clang); n lanes take as many registers as the instruction set needs.
//
//     a + b  a - b  a * b  a / b     per lane; a float on either side is splatted
//     a < b  a == b                  masks for select
//     select(mask, a, b)             a where the mask is set, else b
//     min(a, b)  max(a, b)           b where a lane of a is NaN
//     clamp(a, lo, hi)
//     round(a)                       to the nearest whole number, ties to even; |a| < 2^22
//     a[g]                           one lane
#pragma once

#include <cstdint>
#include <cstring>

namespace ingot::INGOT_ISA::simd {

#if defined(__AVX512F__)
inline constexpr int kNativeFloats = 16;
#elif defined(__AVX__)
inline constexpr int kNativeFloats = 8;
#else
inline constexpr int kNativeFloats = 4;
#endif

template <int n>
struct FloatLanes {
  static constexpr int kWidth = n < kNativeFloats ? n : kNativeFloats;
  static constexpr int kParts = n / kWidth;
  typedef float Part __attribute__((vector_size(kWidth * 4)));
  typedef int32_t MaskPart __attribute__((vector_size(kWidth * 4)));
  static_assert(n % kWidth == 0);

  struct Mask {
    MaskPart part[kParts];
  };

  Part part[kParts];

  FloatLanes() = default;
  FloatLanes(float value) {  // NOLINT: a float is the same in all lanes
    for (Part& p : part) p = Part{} + value;
  }
  static FloatLanes load(const float* from) {
    FloatLanes out;
    std::memcpy(out.part, from, sizeof(out.part));
    return out;
  }
  void store(float* to) const { std::memcpy(to, part, sizeof(part)); }
  float operator[](int lane) const { return part[lane / kWidth][lane % kWidth]; }

#define INGOT_LANEWISE(op)                                                  \
  friend FloatLanes operator op(const FloatLanes& a, const FloatLanes& b) { \
    FloatLanes out;                                                         \
    for (int p = 0; p < kParts; ++p) out.part[p] = a.part[p] op b.part[p];  \
    return out;                                                             \
  }                                                                         \
  FloatLanes& operator op##=(const FloatLanes & b) { return *this = *this op b; }
  INGOT_LANEWISE(+)
  INGOT_LANEWISE(-)
  INGOT_LANEWISE(*)
  INGOT_LANEWISE(/)
#undef INGOT_LANEWISE

#define INGOT_COMPARE(op)                                                  \
  friend Mask operator op(const FloatLanes& a, const FloatLanes& b) {      \
    Mask out;                                                              \
    for (int p = 0; p < kParts; ++p) out.part[p] = a.part[p] op b.part[p]; \
    return out;                                                            \
  }
  INGOT_COMPARE(<)
  INGOT_COMPARE(==)
#undef INGOT_COMPARE

  friend FloatLanes select(const Mask& mask, const FloatLanes& a, const FloatLanes& b) {
    FloatLanes out;
    for (int p = 0; p < kParts; ++p) out.part[p] = mask.part[p] ? a.part[p] : b.part[p];
    return out;
  }
  friend FloatLanes min(const FloatLanes& a, const FloatLanes& b) { return select(a < b, a, b); }
  friend FloatLanes max(const FloatLanes& a, const FloatLanes& b) { return select(b < a, a, b); }
  friend FloatLanes clamp(const FloatLanes& a, const FloatLanes& lo, const FloatLanes& hi) {
    return min(max(a, lo), hi);
  }
  // Adding 1.5 * 2^23 leaves no bits for a fraction, so the sum is rounded to one unit.
  friend FloatLanes round(const FloatLanes& a) { return (a + 0x1.8p23f) - 0x1.8p23f; }
};

}  // namespace ingot::INGOT_ISA::simd
