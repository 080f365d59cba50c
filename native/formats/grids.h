// The grids of the IQ formats: fixed lists of points, each the magnitudes of 8 (or
// 4) neighbouring weights, that a block names by index.
//
// An entry holds its weights as bytes, the first weight in the lowest one:
//
//   IQ2   8, 25 or 43, unsigned
//   IQ1   -8, 0 or 8, signed: eight times the weight, so that the shift of an
//         eighth that the format adds is a whole number too
//   IQ3   4, 12, 20 .. 52, 62 (XXS) or 1, 3, 5 .. 15 (S), unsigned
//
// This is data, compiled once for all instruction sets (grids.cpp).
#pragma once

#include <cstdint>

namespace ingot {

extern const uint64_t (&kGridIq2Xxs)[256];
extern const uint64_t (&kGridIq2Xs)[512];
extern const uint64_t (&kGridIq2S)[1024];
extern const uint64_t (&kGridIq1S)[2048];  // also IQ1_M
extern const uint32_t (&kGridIq3Xxs)[256];
extern const uint32_t (&kGridIq3S)[512];

}  // namespace ingot
