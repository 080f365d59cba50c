// Sixteen bfloat16 numbers of memory at once, for kernels on activations (simd/floats.h).
#pragma once

#include "simd/floats.h"
#include "simd/vector.h"

namespace ingot::INGOT_ISA::simd {

inline F32x16 load_bfloat16s16(const uint8_t* p) {
#if defined(__AVX512F__)
  return {load_bfloat16s(p)};
#elif defined(__AVX2__)
  return {{load_bfloat16s(p), load_bfloat16s(p + 16)}};
#else
  float lanes[16];
  store(lanes, load_bfloat16s(p));
  store(lanes + 8, load_bfloat16s(p + 16));
  return F32x16::load(lanes);
#endif
}

}  // namespace ingot::INGOT_ISA::simd
