// Where keys and values of types made of blocks lie in a block of the cache.
//
// The blocks of the same 32 elements of all positions are a group, as large as they are together.
// It begins with their scales, one half a position. Then come their other bytes, four to a word, so
// that integers can be multiplied where they lie: of keys four of a block, word after word, each
// time of all positions; of values those of four positions, four positions after the other, each
// time of all bytes of a block.
//
// In a word the two in the middle are swapped: then its first and third byte are neighbours, and
// so are its second and fourth. Bytes of Q4_0 hold two signed nibbles.
#pragma once

#include <cstdint>
#include <cstring>

#include "formats/types.h"
#include "kernels/tasks.h"

namespace ingot {

inline constexpr int kTurnedScaleBytes = 2 * kKvBlockTokens;
inline constexpr int kPlaceInWord[4] = {0, 2, 1, 3};

constexpr bool is_turned(TensorType type) {
  return type == TensorType::Q8_0 || type == TensorType::Q4_0;
}

// From the first of a group: byte i of the key of a position, without its scale.
constexpr int turned_key_byte(int i, int position) {
  return kTurnedScaleBytes + (i / 4 * kKvBlockTokens + position) * 4 + kPlaceInWord[i % 4];
}
// The same of a value, which has so many bytes.
constexpr int turned_value_byte(int i, int position, int bytes) {
  return kTurnedScaleBytes + (position / 4 * bytes + i) * 4 + kPlaceInWord[position % 4];
}

// Writes a row of blocks, each of so many bytes, as the key or the value of one position.
inline void store_turned(const uint8_t* row, int64_t blocks, int block_bytes, TensorType type,
                         bool key, int position, uint8_t* to) {
  const uint8_t flipped = type == TensorType::Q4_0 ? 0x88 : 0;  // nibbles count from -8 on
  const int bytes = block_bytes - 2;
  for (int64_t b = 0; b < blocks; ++b, row += block_bytes, to += kKvBlockTokens * block_bytes) {
    std::memcpy(to + 2 * position, row, 2);
    for (int i = 0; i < bytes; ++i)
      to[key ? turned_key_byte(i, position) : turned_value_byte(i, position, bytes)] =
          row[2 + i] ^ flipped;
  }
}

}  // namespace ingot
