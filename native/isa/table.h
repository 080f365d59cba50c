// What one build of the kernels offers: a table of function pointers, filled by
// isa/kernels.cpp once per instruction set and chosen by isa/dispatch.cpp.
#pragma once

#include <cstdint>

#include "formats/types.h"
#include "sampling/row_block.h"

namespace ingot {

struct KernelTable {
  // Indexed by type number; nullptr where a type has no such kernel.
  static constexpr uint32_t kTypes = 64;
  using Decode = void (*)(const uint8_t* blocks, float* out, int64_t count);
  using Encode = void (*)(const float* values, uint8_t* blocks, int64_t count);

  const char* name;
  Decode decode[kTypes];
  Encode encode[kTypes];
  RowKernels row;  // passes over a row of logits (sampling/row.h)
};

}  // namespace ingot
