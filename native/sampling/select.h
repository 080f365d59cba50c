// From a row of logits to its candidates and sums: what Python calls, on top of the passes of
// sampling/row.h. Every function reads one row and knows nothing of the others; a value of
// -inf is a banned token and never a candidate. Equal logits are ordered by token id.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/row_block.h"

namespace ingot::sampling {

struct Candidate {
  float logit;
  int32_t id;
};

enum class RowState { kUsable, kNotFinite, kEmpty };  // kNotFinite: NaN or +inf is in the row

// The `count` largest values, largest first; fewer if the row has fewer.
RowState select_top(const RowKernels& kernels, const float* row, int64_t size, int64_t count,
                    std::vector<Candidate>& found);

// The values within `distance` of the largest, in the row's order.
RowState select_near_top(const RowKernels& kernels, const float* row, int64_t size, double distance,
                         std::vector<Candidate>& found);

struct RowSums {
  float largest;    // of the row
  double total;     // sum of exp(v - largest)
  double weighted;  // sum of exp(v - largest) * (v - largest)
};
RowState sum_row(const RowKernels& kernels, const float* row, int64_t size, RowSums& sums);

// Mean and standard deviation (of the population) of the values above -inf.
struct RowSpread {
  double mean, deviation;
};
RowState spread_of_row(const RowKernels& kernels, const float* row, int64_t size,
                       RowSpread& spread);

// Softmax of a row, in the row's order.
RowState softmax_row(const RowKernels& kernels, const float* row, int64_t size, double* out);

// The index at which the running sum of probabilities passes `uniform`, in 0..1.
RowState draw_from_row(const RowKernels& kernels, const float* row, int64_t size, double uniform,
                       int64_t& index);

// Writes -inf where the bit of a token is 0; tokens after the last word are banned, too.
void mask_row(float* row, int64_t size, const uint32_t* words, int64_t word_count);

// For each position i of `tokens` but the last: how many tokens up to and including i equal
// the end of the whole sequence. The last entry is not written.
void repeat_lengths(const int32_t* tokens, int64_t count, int32_t* lengths);

}  // namespace ingot::sampling
