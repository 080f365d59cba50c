// Q2_K, Q4_K and Q5_K: what encode_search_affine.h finds, in each format's layout (drawn in
// formats/q2_k.h, q4_k.h, q5_k.h).
#pragma once

#include "formats/all.h"
#include "kernels/encode_pack.h"
#include "kernels/encode_search_affine.h"

namespace ingot::INGOT_ISA {

template <class Counts>
inline void encode_q2_k(const float* values, const Counts& counts, uint8_t* block, int64_t count) {
  for (int64_t b = 0; b < count; ++b, values += 256, block += 84) {
    const auto counted = counts.template block<16, 16>(16 * b);
    const auto found = search_affine_block<3, 15, 16, 16>(values, counted);
    for (int g = 0; g < 16; ++g)
      block[g] = static_cast<uint8_t>(found.scale[g] | found.min[g] << 4);
    pack_bit_pairs<0>(found.level, 2, block + 16);
    store_as(block + 80, found.d);
    store_as(block + 82, found.dmin);
  }
}

inline void Q2_K::encode(const float* values, uint8_t* block, int64_t count) {
  encode_q2_k(values, Even{}, block, count);
}

// The inverse of load_six_bit_pairs in formats/six_bit_pairs.h.
inline void pack_six_bit_pairs(const uint8_t* scale, const uint8_t* min, uint8_t* out) {
  for (int g = 0; g < 4; ++g) {
    out[g] = static_cast<uint8_t>(scale[g] | scale[g + 4] >> 4 << 6);
    out[g + 4] = static_cast<uint8_t>(min[g] | min[g + 4] >> 4 << 6);
    out[g + 8] = static_cast<uint8_t>((scale[g + 4] & 15) | min[g + 4] << 4);
  }
}

template <class Counts>
inline void encode_q4_k(const float* values, const Counts& counts, uint8_t* block, int64_t count) {
  for (int64_t b = 0; b < count; ++b, values += 256, block += 144) {
    const auto counted = counts.template block<8, 32>(8 * b);
    const auto found = search_affine_block<15, 63, 8, 32>(values, counted);
    store_as(block, found.d);
    store_as(block + 2, found.dmin);
    pack_six_bit_pairs(found.scale, found.min, block + 4);
    for (int pair = 0; pair < 4; ++pair)
      pack_nibbles<32>(found.level + 64 * pair, block + 16 + 32 * pair);
  }
}

inline void Q4_K::encode(const float* values, uint8_t* block, int64_t count) {
  encode_q4_k(values, Even{}, block, count);
}

template <class Counts>
inline void encode_q5_k(const float* values, const Counts& counts, uint8_t* block, int64_t count) {
  for (int64_t b = 0; b < count; ++b, values += 256, block += 176) {
    const auto counted = counts.template block<8, 32>(8 * b);
    const auto found = search_affine_block<31, 63, 8, 32>(values, counted);
    store_as(block, found.d);
    store_as(block + 2, found.dmin);
    pack_six_bit_pairs(found.scale, found.min, block + 4);
    pack_bit_planes<4>(found.level, block + 16);
    for (int pair = 0; pair < 4; ++pair)
      pack_nibbles<32>(found.level + 64 * pair, block + 48 + 32 * pair);
  }
}

inline void Q5_K::encode(const float* values, uint8_t* block, int64_t count) {
  encode_q5_k(values, Even{}, block, count);
}

}  // namespace ingot::INGOT_ISA
