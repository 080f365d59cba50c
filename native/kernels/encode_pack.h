// Small integers to bytes, the way several formats share.
//
//     nibbles       byte i of n bytes: level i (low) and level i + n (high)
//     bit pairs     byte i of a run of 32: two bits each of levels i, i+32, i+64, i+96
//     bit planes    bit s of byte i: one bit of level i of slice s (32 levels each)
#pragma once

#include <cstdint>
#include <cstring>

namespace ingot::INGOT_ISA {

template <class T>
inline void store_as(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

template <int kBytes>
inline void pack_nibbles(const uint8_t* levels, uint8_t* out) {
  for (int i = 0; i < kBytes; ++i)
    out[i] = static_cast<uint8_t>((levels[i] & 15) | levels[i + kBytes] << 4);
}

// `runs` runs of 128 levels; the pair of each is at bits kShift and kShift + 1.
template <int kShift>
inline void pack_bit_pairs(const uint8_t* levels, int runs, uint8_t* out) {
  for (; runs > 0; --runs, levels += 128, out += 32) {
    for (int i = 0; i < 32; ++i) {
      const auto pair = [&](int k) { return (levels[i + 32 * k] >> kShift & 3) << (2 * k); };
      out[i] = static_cast<uint8_t>(pair(0) | pair(1) | pair(2) | pair(3));
    }
  }
}

// Bit kBit of 256 levels: 8 slices into 32 bytes.
template <int kBit>
inline void pack_bit_planes(const uint8_t* levels, uint8_t* out) {
  std::memset(out, 0, 32);
  for (int slice = 0; slice < 8; ++slice)
    for (int i = 0; i < 32; ++i)
      out[i] = static_cast<uint8_t>(out[i] | (levels[32 * slice + i] >> kBit & 1) << slice);
}

}  // namespace ingot::INGOT_ISA
