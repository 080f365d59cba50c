// What the executor hands to kernels, apart from plain pointers: shared by all
// instruction sets.
#pragma once

#include <cstdint>

#include "formats/types.h"

namespace ingot {

enum class ActivationKind : int {
  kSilu = 0,
  kGelu = 1,
  kGeluTanh = 2,
  kReluSquared = 3,
  kClampedSwiglu = 4,
};
inline constexpr int kActivationKinds = 5;

// Positions in a block of the cache.
inline constexpr int kKvBlockTokens = 32;

// The widest head any architecture has so far is 256; checked when a program is built.
inline constexpr int kMaxHeadSize = 1024;

// A row's running softmax.
struct AttendRow {
  float maximum;
  float sum;
};

// Query rows of one key head over positions [begin, end) of one sequence; row i is head
// i % repeat of token i / repeat.
struct AttendTask {
  const float* const* query;  // one pointer per row
  const int32_t* positions;   // one per token
  int tokens;
  int repeat;
  int64_t head_size;
  const uint8_t* pool;  // of cache blocks
  int64_t block_bytes;
  const int32_t* table;  // block of each run of kKvBlockTokens positions
  int64_t key_offset;    // of this layer's and head's keys inside a block
  int64_t value_offset;
  TensorType type;
  float scale;
  float softcap;   // 0: none
  int64_t window;  // 0: none
  bool causal;     // else every row sees all of [begin, end)
  int64_t begin;   // a multiple of kKvBlockTokens
  int64_t end;
  AttendRow* row;  // results: one per row,
  float* mix;      // [rows][head_size], not yet divided by the sum
  float* scratch;  // attend_scratch_floats(head_size)
};

constexpr int64_t attend_scratch_floats(int64_t head_size) {
  return kKvBlockTokens * (3 * head_size + 4);
}

}  // namespace ingot
