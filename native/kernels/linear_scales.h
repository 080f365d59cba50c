// The scales of the common formats, read with vectors: what F::scales() says, in a tenth of
// the instructions. A matrix kernel reads them once for every 256 weights, so where weights
// come from the cache they decide its speed.
//
//     scale_bytes(F, block)      256-weight blocks: scales and minimums as bytes
//     block_factors(F, blocks)   32-weight blocks: the factors of eight in a row
#pragma once

#include "formats/all.h"
#include "simd/vector.h"

namespace ingot::INGOT_ISA {

struct ScaleBytes {
  float d;            // multiplies every scale
  float m;            // multiplies every minimum
  uint64_t scale[2];  // signed bytes, the first group's lowest
  uint64_t min[2];
};

inline constexpr uint64_t kNibbles = 0x0f0f0f0f0f0f0f0f;

inline simd::U8x16 bytes_of(uint64_t first, uint64_t last) {
  return simd::low_half(simd::from_words(first, last, 0, 0));
}

// Subtracts 32 from each of eight bytes of six bits: bit 5 flipped is the sign.
inline uint64_t centre_six_bits(uint64_t v) {
  constexpr uint64_t kSigns = 0x2020202020202020;
  v ^= kSigns;
  return v | (v & kSigns) << 1 | (v & kSigns) << 2;
}

// formats/six_bit_pairs.h, four bytes at a time.
inline ScaleBytes scale_bytes_of_six_bit_pairs(const uint8_t* block) {
  const uint64_t a = load_as<uint32_t>(block + 4), b = load_as<uint32_t>(block + 8);
  const uint64_t c = load_as<uint32_t>(block + 12);
  const uint64_t scale_hi = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
  const uint64_t min_hi = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
  return {load_f16(block),
          -load_f16(block + 2),
          {(a & 0x3f3f3f3f) | scale_hi << 32, 0},
          {(b & 0x3f3f3f3f) | min_hi << 32, 0}};
}
inline ScaleBytes scale_bytes(Q4_K, const uint8_t* block) {
  return scale_bytes_of_six_bit_pairs(block);
}
inline ScaleBytes scale_bytes(Q5_K, const uint8_t* block) {
  return scale_bytes_of_six_bit_pairs(block);
}

inline ScaleBytes scale_bytes(Q2_K, const uint8_t* block) {
  const uint64_t lo = load_as<uint64_t>(block), hi = load_as<uint64_t>(block + 8);
  return {load_f16(block + 80),
          -load_f16(block + 82),
          {lo & kNibbles, hi & kNibbles},
          {lo >> 4 & kNibbles, hi >> 4 & kNibbles}};
}

inline ScaleBytes scale_bytes(Q3_K, const uint8_t* block) {
  const uint64_t low = load_as<uint64_t>(block + 96);
  const uint64_t top = load_as<uint32_t>(block + 104);
  // The top bits of four groups at a time, to bits 4 and 5 of their bytes.
  const uint64_t top_lo = (top & 0x03030303) << 4 | (top & 0x0c0c0c0c) << 34;
  const uint64_t top_hi = (top & 0x30303030) | (top & 0xc0c0c0c0) << 30;
  return {
      load_f16(block + 108),
      0,
      {centre_six_bits((low & kNibbles) | top_lo), centre_six_bits((low >> 4 & kNibbles) | top_hi)},
      {}};
}

inline ScaleBytes scale_bytes(Q6_K, const uint8_t* block) {
  return {load_f16(block + 208),
          0,
          {load_as<uint64_t>(block + 192), load_as<uint64_t>(block + 200)},
          {}};
}

// Eight fields of `bits` bits that follow each other, to eight bytes.
template <int bits>
inline uint64_t spread_fields(uint64_t v) {
  constexpr auto mask = [](int width) { return (uint64_t{1} << width) - 1; };
  v = (v | v << (32 - 4 * bits)) & mask(4 * bits) * 0x0000000100000001;
  v = (v | v << (16 - 2 * bits)) & mask(2 * bits) * 0x0001000100010001;
  return (v | v << (8 - bits)) & mask(bits) * 0x0101010101010101;
}
// Eight scales of the form 2 * nibble + 1.
inline uint64_t odd_scales(const uint8_t* nibbles) {
  return spread_fields<4>(load_as<uint32_t>(nibbles)) << 1 | 0x0101010101010101;
}

inline ScaleBytes scale_bytes(IQ4_XS, const uint8_t* block) {
  const uint64_t tops = spread_fields<2>(load_as<uint16_t>(block + 2)) << 4;
  const uint64_t lows = spread_fields<4>(load_as<uint32_t>(block + 4));
  return {load_f16(block), 0, {centre_six_bits(lows | tops), 0}, {}};
}
inline ScaleBytes scale_bytes(IQ2_XS, const uint8_t* block) {
  return {load_f16(block) * 0.125f, 0, {odd_scales(block + 66), odd_scales(block + 70)}, {}};
}
inline ScaleBytes scale_bytes(IQ2_S, const uint8_t* block) {
  return {load_f16(block) * 0.125f, 0, {odd_scales(block + 74), odd_scales(block + 78)}, {}};
}
inline ScaleBytes scale_bytes(IQ3_S, const uint8_t* block) {
  return {load_f16(block), 0, {odd_scales(block + 106), 0}, {}};
}

struct BlockFactors {
  simd::Floats d, m;  // of eight blocks, in the first lanes
};

template <class F>
inline BlockFactors halves_of_blocks(const uint8_t* blocks) {
  BlockFactors factors{simd::load_halves_at(blocks, F::kBytes), simd::zero_floats()};
  if constexpr (F::kHasMin) factors.m = simd::load_halves_at(blocks + 2, F::kBytes);
  return factors;
}
inline BlockFactors block_factors(Q4_0, const uint8_t* p) { return halves_of_blocks<Q4_0>(p); }
inline BlockFactors block_factors(Q4_1, const uint8_t* p) { return halves_of_blocks<Q4_1>(p); }
inline BlockFactors block_factors(Q5_0, const uint8_t* p) { return halves_of_blocks<Q5_0>(p); }
inline BlockFactors block_factors(Q5_1, const uint8_t* p) { return halves_of_blocks<Q5_1>(p); }
inline BlockFactors block_factors(Q8_0, const uint8_t* p) { return halves_of_blocks<Q8_0>(p); }
inline BlockFactors block_factors(IQ4_NL, const uint8_t* p) { return halves_of_blocks<IQ4_NL>(p); }

// NVFP4's scale for each byte that may encode it (formats/nvfp4.h), halved like there.
struct Nvfp4Scales {
  float value[256];
  constexpr Nvfp4Scales() : value() {
    for (int byte = 0; byte < 256; ++byte) {
      const int exponent = byte >> 3 & 15, mantissa = byte & 7;
      const int whole = exponent == 0 ? mantissa : (8 + mantissa) << (exponent - 1);
      value[byte] = byte == 0x7f ? 0 : static_cast<float>(whole) * 0x1p-10f;
    }
  }
  constexpr float operator[](uint8_t byte) const { return value[byte]; }
};
inline constexpr Nvfp4Scales kNvfp4Scales;

}  // namespace ingot::INGOT_ISA
