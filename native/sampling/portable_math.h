// exp and log of doubles from additions, multiplications, divisions and moved bits only,
// so that every machine, compiler and vector width gives the same result: a draw must not
// depend on somebody's math library. Error: at most 1 unit in the last place for exp of
// numbers up to 0, 2 for log (tests/unit/sampling/test_portable_math.py).
//
// In vectors of the compiler (gcc and clang), as wide as the instruction set has them.
// Included by code that is compiled once per instruction set, hence the namespace; always
// inlined, as vectors are passed to functions differently by each of them.
#pragma once

#include <cstdint>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace ingot::INGOT_ISA {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

using Doubles = double __attribute__((vector_size(kVectorBytes)));
using Longs = int64_t __attribute__((vector_size(kVectorBytes)));

#define INGOT_INLINE [[gnu::always_inline]] static inline

// `value` where the mask is all ones, 0 where it is 0.
INGOT_INLINE Doubles keep_if(Longs mask, Doubles value) { return (Doubles)((Longs)value & mask); }

INGOT_INLINE Doubles splat(double value) { return value - Doubles{}; }

// exp(x) for x <= 709; below -708 it is 0, so nothing becomes subnormal.
INGOT_INLINE Doubles portable_exp(Doubles x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kRound = 0x1.8p52;  // adding it rounds to a whole number in the low bits
  constexpr double kLowest = -708.0;
  const Longs counts = x > kLowest;
  const Doubles clamped = counts ? x : splat(kLowest);
  const Doubles shifted = clamped * kLog2E + kRound;
  const Doubles whole = shifted - kRound;
  const Doubles r = (clamped - whole * kLn2High) - whole * kLn2Low;  // |r| <= ln(2) / 2
  // Taylor's series, from the smallest term: the first one left out is below 2^-57 of the sum.
  Doubles sum = splat(1.0 / 6227020800.0);
  sum = sum * r + 1.0 / 479001600.0;
  sum = sum * r + 1.0 / 39916800.0;
  sum = sum * r + 1.0 / 3628800.0;
  sum = sum * r + 1.0 / 362880.0;
  sum = sum * r + 1.0 / 40320.0;
  sum = sum * r + 1.0 / 5040.0;
  sum = sum * r + 1.0 / 720.0;
  sum = sum * r + 1.0 / 120.0;
  sum = sum * r + 1.0 / 24.0;
  sum = sum * r + 1.0 / 6.0;
  sum = sum * r + 0.5;
  sum = sum * r + 1.0;
  sum = sum * r + 1.0;
  return keep_if(counts, (Doubles)((Longs)sum + ((Longs)shifted << 52)));
}

// log(x) for normal x > 0.
INGOT_INLINE Doubles portable_log(Doubles x) {
  constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr int64_t kSqrtHalf = 0x3fe6a09e667f3bcd;  // the bits of sqrt(1/2)
  // x = m * 2^n with sqrt(1/2) <= m < sqrt(2).
  const Longs n = ((Longs)x - kSqrtHalf) >> 52;
  const Doubles m = (Doubles)((Longs)x - (n << 52));
  // log(m) = 2 * artanh(f) = 2 * (f + f^3/3 + f^5/5 + ...), |f| <= 0.172
  const Doubles f = (m - 1.0) / (m + 1.0), square = f * f;
  Doubles sum = splat(1.0 / 21.0);
  sum = sum * square + 1.0 / 19.0;
  sum = sum * square + 1.0 / 17.0;
  sum = sum * square + 1.0 / 15.0;
  sum = sum * square + 1.0 / 13.0;
  sum = sum * square + 1.0 / 11.0;
  sum = sum * square + 1.0 / 9.0;
  sum = sum * square + 1.0 / 7.0;
  sum = sum * square + 1.0 / 5.0;
  sum = sum * square + 1.0 / 3.0;
  const Doubles tail = 2.0 * f * (square * sum);
  const Doubles exponent = __builtin_convertvector(n, Doubles);
  return exponent * kLn2High + (2.0 * f + (tail + exponent * kLn2Low));
}

}  // namespace ingot::INGOT_ISA
