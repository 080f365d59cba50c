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
//     zero_floats() splat_float(x) load_floats(p) store(p, v)
//     load_halves(p) load_bfloat16s(p)   16-bit floats, any alignment
//     add(a, b)   multiply(a, b)   multiply_add(a, b, c)  a * b + c, one rounding where there is
//     FMA splat_runs(p)                  p[0] in the lanes of words 0..15 of a Pairs, p[1] in the
//     others sum(v)                         all lanes, in an order that never changes
//     round_to_ints(v)               nearest, ties to even; |v| < 2^22
//     to_floats(i)   sum(i)
//     store_words(p, i)              the low 16 bits of each lane
//     load_pairs(p) store_pairs(p, v)
//     splat_pair(p)                  the two words at p in every lane
//     dot(sum, a, b)                 sum + a.first * b.first + a.second * b.second, 32 bits
//     widen(v)                       a slice of signed bytes -> Words
//     scale(w, factor)               low 16 bits of the products
//     scale(w, lo, hi)               by lo for words 0..15, by hi for 16..31
//     transpose(rows)                kLanes x kLanes pairs, in place
//     prefetch(p)                    ask for the line at p, into the second-level cache
#pragma once

#include "simd/simd.h"

#if defined(__AVX512F__)
#include "simd/vector_avx512.h"
#elif defined(__AVX2__)
#include "simd/vector_avx2.h"
#else
#include "simd/vector_scalar.h"
#endif
