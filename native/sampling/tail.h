// The usual end of a chain in one pass: top-k, top-p, min-p, temperature, draw. Each step is
// what the sampler of that name does in Python, to the bit; this saves the way back and forth.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/select.h"

namespace ingot::sampling {

struct Tail {
  int64_t count;      // top-k
  double share;       // top-p; above 1: none
  double distance;    // min-p, as a distance from the largest logit; infinite: none
  int64_t least;      // tokens that top-p and min-p leave at least
  float temperature;  // 1: none; below the smallest normal float: the likeliest
  double uniform;     // in [0, 1)
};

// `scratch` is used for the candidates. The token is written if the row is usable.
RowState sample_row(const RowKernels& kernels, const float* row, int64_t size, const Tail& tail,
                    std::vector<Candidate>& scratch, int32_t& token);

}  // namespace ingot::sampling
