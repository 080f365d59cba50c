// A matrix as its file stores it, and perhaps a copy of it.
#pragma once

#include <cstdint>

#include "formats/types.h"

namespace ingot {

struct WeightCopy;  // executor/weight_copy.h

struct WeightRef {
  const uint8_t* data;
  TensorType type;
  int64_t rows;
  int64_t columns;
  const WeightCopy* copy = nullptr;
  int64_t row_bytes() const {
    const TypeTraits& traits = *find_type(static_cast<uint32_t>(type));
    return columns / traits.block_weights * traits.block_bytes;
  }
};

}  // namespace ingot
