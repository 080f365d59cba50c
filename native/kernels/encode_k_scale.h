// Q3_K and Q6_K: what encode_search_scale.h finds, in each format's layout (drawn in
// formats/q3_k.h, q6_k.h).
#pragma once

#include "formats/all.h"
#include "kernels/encode_pack.h"
#include "kernels/encode_search_scale.h"

namespace ingot::INGOT_ISA {

template <class Counts>
inline void encode_q3_k(const float* values, const Counts& counts, uint8_t* block, int64_t count) {
  for (int64_t b = 0; b < count; ++b, values += 256, block += 110) {
    const auto counted = counts.template block<16, 16>(16 * b);
    const auto found = search_scaled_block<EvenLevels<-4, 3>, -32, 16, 16>(values, counted);
    pack_bit_planes<2>(found.index, block);
    pack_bit_pairs<0>(found.index, 2, block + 32);
    uint8_t six_bits[16];
    for (int g = 0; g < 16; ++g) six_bits[g] = static_cast<uint8_t>(found.scale[g] + 32);
    pack_nibbles<8>(six_bits, block + 96);
    for (int i = 0; i < 4; ++i) {
      const auto top = [&](int k) { return six_bits[i + 4 * k] >> 4 << (2 * k); };
      block[104 + i] = static_cast<uint8_t>(top(0) | top(1) | top(2) | top(3));
    }
    store_as(block + 108, found.d);
  }
}

inline void Q3_K::encode(const float* values, uint8_t* block, int64_t count) {
  encode_q3_k(values, Even{}, block, count);
}

template <class Counts>
inline void encode_q6_k(const float* values, const Counts& counts, uint8_t* block, int64_t count) {
  for (int64_t b = 0; b < count; ++b, values += 256, block += 210) {
    const auto counted = counts.template block<16, 16>(16 * b);
    const auto found = search_scaled_block<EvenLevels<-32, 31>, -128, 16, 16>(values, counted);
    for (int half = 0; half < 2; ++half)
      pack_nibbles<64>(found.index + 128 * half, block + 64 * half);
    pack_bit_pairs<4>(found.index, 2, block + 128);
    for (int g = 0; g < 16; ++g) block[192 + g] = static_cast<uint8_t>(found.scale[g]);
    store_as(block + 208, found.d);
  }
}

inline void Q6_K::encode(const float* values, uint8_t* block, int64_t count) {
  encode_q6_k(values, Even{}, block, count);
}

}  // namespace ingot::INGOT_ISA
