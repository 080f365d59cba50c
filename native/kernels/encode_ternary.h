// TQ1_0 and TQ2_0: every weight of a block becomes -d, 0 or d, with d the largest
// magnitude of the block. Defined to the last bit by the `gguf` package; what is not
// finite is treated as in encode_rounded.h.
//
// TQ1_0 writes five trits as one byte: the number they spell in base three, first trit
// leading, as a fraction of 243 in 256ths, rounded up.
#pragma once

#include "kernels/encode_rounded.h"

namespace ingot::INGOT_ISA {

// Levels 0, 1, 2 for -d, 0, d; returns d.
inline float ternary_levels(const float* values, uint8_t* levels) {
  const float d = largest_magnitude(values, 256);
  const float inverse = inverse_or_zero(d);
  for (int i = 0; i < 256; ++i) levels[i] = static_cast<uint8_t>(rounded(values[i] * inverse) + 1);
  return d;
}

// Byte i of kBytes takes kTrits levels, kBytes apart; a missing fifth trit counts as 0.
template <int kTrits, int kBytes>
inline void pack_trits(const uint8_t* levels, uint8_t* out) {
  for (int i = 0; i < kBytes; ++i) {
    int number = 0;
    for (int trit = 0; trit < 5; ++trit)
      number = number * 3 + (trit < kTrits ? levels[i + trit * kBytes] : 0);
    out[i] = static_cast<uint8_t>((number * 256 + 242) / 243);
  }
}

inline void TQ1_0::encode(const float* values, uint8_t* block, int64_t count) {
  for (; count > 0; --count, values += 256, block += 54) {
    uint8_t levels[256];
    const float d = ternary_levels(values, levels);
    pack_trits<5, 32>(levels, block);
    pack_trits<5, 16>(levels + 160, block + 32);
    pack_trits<4, 4>(levels + 240, block + 48);
    store_as(block + 52, simd::float_to_half_bits(d));
  }
}

inline void TQ2_0::encode(const float* values, uint8_t* block, int64_t count) {
  for (; count > 0; --count, values += 256, block += 66) {
    uint8_t levels[256];
    const float d = ternary_levels(values, levels);
    pack_bit_pairs<0>(levels, 2, block);
    store_as(block + 64, simd::float_to_half_bits(d));
  }
}

}  // namespace ingot::INGOT_ISA
