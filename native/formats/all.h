// Every block format, and the list of them that kernels are instantiated over.
#pragma once

#include "formats/q4_0.h"
#include "formats/q4_k.h"

#define INGOT_BLOCK_FORMATS(X) \
  X(Q4_0)                      \
  X(Q4_K)

// Types that are not made of blocks, with the C++ type of one value.
#define INGOT_PLAIN_TYPES(X) \
  X(F32, float)              \
  X(F16, Half)               \
  X(BF16, Bfloat16)          \
  X(F64, double)             \
  X(I8, int8_t)              \
  X(I16, int16_t)            \
  X(I32, int32_t)            \
  X(I64, int64_t)
