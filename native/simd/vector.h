// The vector operations matrix kernels are written in, for the instruction set
// this translation unit is compiled for. simd.h gives a slice of 32 weights as
// bytes; from there on vectors are as wide as the registers:
//
//     kLanes    32-bit lanes of a register: 16 with AVX-512, else 8
//     Floats    kLanes floats
//     Ints      kLanes 32-bit integers
//     Pairs     kLanes pairs of 16-bit integers
//     Words     the 32 weights of a slice as 16-bit integers, in order: 32 / (2 * kLanes) Pairs
//
// Floats
//     zero_floats() splat_float(x) load_floats(p) store(p, v)
//     load_halves(p) load_bfloat16s(p)   16-bit floats, any alignment
//     load_halves_at(p, stride)      8 halves, stride bytes apart, in the first 8 lanes
//     signed_floats(h)               16 signed bytes as floats: 16 / kLanes vectors
//     add(a, b)   multiply(a, b)   multiply_add(a, b, c)  a * b + c, one rounding where there is
//     FMA sum(v)                         all lanes, in an order that never changes
// Ints
//     round_to_ints(v)               nearest, ties to even; |v| < 2^22
//     splat_int(n) store_ints(p, i) add(a, b) larger(a, b)
//     to_floats(i)   sum(i)   magnitude_bits(v)   a float's bits without the sign
//     store_words(p, i)              the low 16 bits of each lane
//     store_bytes(p, i)              the low 8 bits of each lane
// Pairs
//     load_pairs(p) store_pairs(p, v)
//     splat_pair(p)                  the two words at p in every lane
//     dot(sum, a, b)                 sum + a.first * b.first + a.second * b.second, 32 bits
//     transpose(rows)                kLanes x kLanes pairs, in place; also Ints, Floats and Fours
// Fours: four bytes of every lane
//     load_fours(p) store_fours(p, v)
//     as_fours(slices)               the bytes of kLanes / 8 slices in a row
//     splat_four<i>(p)               the four signed bytes at p + 4 * i, in every lane
//     add_quad<most, i, n>(sum, part, a, b)   sum + four products of unsigned a and signed b, for
//                                    quad i of a group of n; a is at most `most`, which is at most
//                                    kMostByte, or signed, if kTakesNegativeBytes; `part` holds
//                                    sums of 16 bits where there are no dot products of bytes
// Words
//     widen(v) widen_unsigned(v)     a slice of bytes
//     load_words(p) store_words(p, w)   32 in a row
//     load_two_words(p, q)           16 from each
//     set_group_scales(scales, a, b)   16 signed bytes, the first in the low byte of a
//     splat_group<g>(scales)         scale g everywhere
//     splat_two_groups<g>(scales)    scale g in words 0..15, the next one in 16..31
//     scale(w, v)                    low 16 bits of the products
//     keep(w, m)                     w & m
//     merge(w, v, m)                 w | (v & m)
//     subtract(w, n)   shift_right<n>(w)   shift_left<n>(w)
// HalfSums: the dot product of words 0..15 in some lanes, that of 16..31 in others
//     zero_half_sums() dot_halves(sums, w, v)
//     HalfFactors load_half_factors(p)      p[0] for the former, p[1] for the latter
//     add_scaled(total, sums, factors)      total + each sum under its factor
// Memory
//     prefetch(p)                    ask for the line at p, into the second-level cache
//     prefetch_near(p)               the same, into the first-level cache
#pragma once

#include <utility>

#include "simd/simd.h"

#if defined(__AVX2__) || defined(INGOT_NEON)
#define INGOT_TURNS  // rows become lanes while they are packed
#include "simd/turned.h"
#if defined(INGOT_NEON) && defined(__ARM_FEATURE_MATMUL_INT8)
#define INGOT_MATMUL  // the CPU multiplies small matrices of bytes
#include "simd/matmul_neon.h"
#endif
#if defined(__AVX2__) && !defined(__AVXVNNI__) && !defined(__AVX512VNNI__)
#include "simd/byte_pairs.h"
#endif
#else
#include "simd/vector_scalar.h"
// After it:
#include "simd/fours.h"
#endif

// For functions whose arrays of vectors must live in registers: gcc leaves some of the lambdas in
// them as calls, which pass arrays through memory. In plain C++ nothing is gained, and compiling
// takes minutes, as it does with sanitizers.
#if defined(INGOT_TURNS) && !defined(__SANITIZE_ADDRESS__)
#define INGOT_FLATTEN [[gnu::flatten]]
#else
#define INGOT_FLATTEN
#endif

namespace ingot::INGOT_ISA {

// Calls body(0) .. body(count - 1), each number a compile-time constant: arrays of vectors
// indexed by it live in registers, which those indexed by a loop's variable do not.
template <int count, class Body>
inline void repeat(Body body) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (body(std::integral_constant<int, i>{}), ...);
  }(std::make_integer_sequence<int, count>{});
}

#if !defined(INGOT_NEON)
namespace simd {

template <class Vector>
inline void transpose(Vector (&row)[kLanes]) {
  Pairs rows[kLanes];
  repeat<kLanes>([&](auto i) { rows[i] = __builtin_bit_cast(Pairs, row[i]); });
  transpose(rows);
  repeat<kLanes>([&](auto i) { row[i] = __builtin_bit_cast(Vector, rows[i]); });
}

}  // namespace simd
#endif

}  // namespace ingot::INGOT_ISA
