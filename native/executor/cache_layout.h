// Where a token's key and value lie in the cache.
//
// The cache is a pool of equal blocks per group of layers that keep the same positions
// (all of them, or a window). A block holds kKvBlockTokens positions of every layer of its
// group: per layer and key head first the keys, then the values; or keys alone, if a value is the
// last elements of its key.
#pragma once

#include <cstdint>

#include "formats/types.h"
#include "kernels/tasks.h"

namespace ingot {

struct CacheLayer {
  int group;
  uint8_t* pool;
  int64_t block_bytes;
  int64_t offset;  // of this layer inside a block
  TensorType type;
  int64_t head_size;
  int64_t shared_value;  // elements of a key that are its value; 0: values are stored, too

  int64_t value_size() const { return shared_value ? shared_value : head_size; }
  int64_t head_bytes() const {
    const TypeTraits& traits = *find_type(static_cast<uint32_t>(type));
    return head_size / traits.block_weights * traits.block_bytes * kKvBlockTokens;
  }
  int64_t sides() const { return shared_value ? 1 : 2; }
  int64_t key_offset(int64_t head) const { return offset + sides() * head * head_bytes(); }
  int64_t value_offset(int64_t head) const { return key_offset(head) + head_bytes(); }
};

}  // namespace ingot
