// What the executor hands to kernels, apart from plain pointers: shared by all
// instruction sets.
#pragma once

#include <cstdint>

#include "formats/types.h"
#include "kernels/codes.h"

namespace ingot {

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
  int64_t head_size;  // of queries and keys
  int64_t value_size;
  bool value_in_key;    // its last elements; else values lie at value_offset
  const uint8_t* pool;  // of cache blocks
  int64_t block_bytes;
  const int32_t* table;  // block of each run of kKvBlockTokens positions
  int64_t key_offset;    // of this layer's and head's keys inside a block
  int64_t value_offset;
  TensorType type;
  float scale;
  float softcap;   // 0: none
  int64_t window;  // 0: none
  bool chunked;    // windows lie side by side: a row sees those of its own
  bool causal;     // else every row sees all of [begin, end)
  int64_t oldest;  // no row sees a position before this one
  // Of each token the positions that it sees, in ascending order, `choices` of them. If the last is
  // negative, they are all that it sees anyway. Null: every token sees all.
  const float* const* chosen;
  int64_t choices;
  uint32_t* masks;  // [tokens]: room for a bit for each position of a block
  // Added to scores, for each of `repeat` heads: `bias` by the distance from query to key, from
  // -(reach + kKvBlockTokens) on, 2 * (reach + kKvBlockTokens) of them; the distance itself times
  // -`slopes`. Null: none.
  const float* bias;
  int64_t reach;
  const float* slopes;
  int64_t begin;  // a multiple of kKvBlockTokens
  int64_t end;
  AttendRow* row;  // results: one per row,
  float* mix;      // [rows][value_size], not yet divided by the sum
  float* scratch;  // attend_scratch_floats(head_size)
};

// What positions [begin, end) of one sequence are worth to a token, by the key of each:
// the sum over heads of weights[head] * max(0, query[head] . key).
struct ScoreTask {
  const float* query;    // [heads][head_size]
  const float* weights;  // [heads]
  int64_t heads, head_size;
  const uint8_t* pool;  // of cache blocks
  int64_t block_bytes;
  const int32_t* table;  // block of each run of kKvBlockTokens positions
  int64_t key_offset;
  TensorType type;
  int64_t begin, end;  // `begin` is a multiple of kKvBlockTokens
  float* scores;       // of whole blocks, from `begin` on
  float* scratch;      // [head_size][kKvBlockTokens]
};

// Unmapped queries of one head over latents, whose keys and values of that head are made on the
// way.
struct ExpandedTask {
  AttendTask attend;  // of unmapped queries; value_size is a multiple of 32, value_offset not used;
                      // scratch: kKvBlockTokens * (rotary + latent + head_size + value_size)
  int64_t latent;     // elements of a stored key that are mapped: all after the first `rotary`
  int64_t rotary;     // which the key begins with, as queries do
  const float* key_map;    // [latent][head_size - rotary]
  const float* value_map;  // [latent][value_size]
};

// A causal convolution of channels [begin, end) over the tokens of one sequence.
struct ConvTask {
  const float* source;  // [tokens][channels]
  const float* past;    // [taps - 1][channels]: the rows before
  const float* weight;  // [taps][channels]
  const float* bias;    // [channels]
  bool silu;            // of the sum
  int64_t tokens, channels, taps;
  int64_t begin, end;
  float* out;  // [tokens][channels]
};

// Channels of a state space are worked on in lanes.
inline constexpr int64_t kLanes = 16;

// A state space: the channels of one vector of lanes over tokens of one sequence.
struct ScanTask {
  int64_t tokens;
  int64_t first, channels;  // of the vector: the first of them all, and how many
  const float* x;           // [tokens][stride], from the first channel on
  float* out;               // the same
  int64_t stride;
  const float* step;  // [tokens][step_stride], one number a head
  int64_t step_stride, head_size;
  const float *b, *c;  // [tokens][state_stride], the group's
  int64_t state_stride, states;
  const float* decay;  // [states][kLanes], or [kLanes]
  bool one_decay;      // for all elements of the state
  const float* skip;   // [kLanes]
  float* state;        // [states][kLanes]
};

// A gated delta rule: lanes of the values of one head over tokens of one sequence.
struct DeltaTask {
  int64_t tokens;
  const float *query, *key;  // [tokens][key_stride], of the head's key head
  int64_t key_stride, key_size;
  const float* value;  // [tokens][value_stride], from the first lane on
  float* out;          // the same
  int64_t value_stride;
  int64_t lanes;             // at most kLanes
  const float *step, *rate;  // [tokens][head_stride], the head's
  int64_t head_stride;
  float decay, bias, epsilon, scale;  // bias: of steps; scale: of queries
  float* state;                       // [key_size][kLanes]
};

// The first position that a token sees.
constexpr int64_t oldest_seen(int64_t position, int64_t window, bool chunked) {
  if (window <= 0) return 0;
  if (chunked) return position / window * window;
  return position >= window ? position - window + 1 : 0;
}

// Some rows of a head's matrix, decoded, times the same head of several tokens.
struct HeadTask {
  const float* matrix;  // [rows][columns]
  int64_t rows, columns;
  const float* x;  // [tokens][x_stride]
  int64_t x_stride;
  int64_t tokens;
  float* out;  // [tokens][out_stride]
  int64_t out_stride;
};

// What an adapter adds to outputs [begin, end) of several tokens.
inline constexpr int64_t kUpPanel = 16;  // outputs
struct LowRankTask {
  const uint8_t* up;  // [panels][rank][kUpPanel], the last panel filled up with anything
  int64_t rank;
  int64_t begin, end;  // `begin` is the first output of a panel
  const float* low;    // [tokens][low_stride]
  int64_t low_stride;
  int64_t tokens;
  float* out;  // [tokens][out_stride], from output `begin` on
  int64_t out_stride;
};

constexpr int64_t attend_scratch_floats(int64_t head_size) {
  return kKvBlockTokens * 2 * head_size;
}

}  // namespace ingot
