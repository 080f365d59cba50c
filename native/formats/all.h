// The registry: every block format, and the lists of types that kernels are instantiated over.
// A new format is one more include and one more line of INGOT_BLOCK_FORMATS.
#pragma once

#include "formats/iq1_m.h"
#include "formats/iq1_s.h"
#include "formats/iq2_s.h"
#include "formats/iq2_xs.h"
#include "formats/iq2_xxs.h"
#include "formats/iq3_s.h"
#include "formats/iq3_xxs.h"
#include "formats/iq4_nl.h"
#include "formats/iq4_xs.h"
#include "formats/mxfp4.h"
#include "formats/nvfp4.h"
#include "formats/plain.h"
#include "formats/q1_0.h"
#include "formats/q2_0.h"
#include "formats/q2_k.h"
#include "formats/q3_k.h"
#include "formats/q4_0.h"
#include "formats/q4_1.h"
#include "formats/q4_k.h"
#include "formats/q5_0.h"
#include "formats/q5_1.h"
#include "formats/q5_k.h"
#include "formats/q6_k.h"
#include "formats/q8_0.h"
#include "formats/q8_k.h"
#include "formats/tq1_0.h"
#include "formats/tq2_0.h"

#define INGOT_BLOCK_FORMATS(X) \
  X(Q1_0)                      \
  X(Q2_0)                      \
  X(Q4_0)                      \
  X(Q4_1)                      \
  X(Q5_0)                      \
  X(Q5_1)                      \
  X(Q8_0)                      \
  X(Q2_K)                      \
  X(Q3_K)                      \
  X(Q4_K)                      \
  X(Q5_K)                      \
  X(Q6_K)                      \
  X(Q8_K)                      \
  X(IQ1_S)                     \
  X(IQ1_M)                     \
  X(IQ2_XXS)                   \
  X(IQ2_XS)                    \
  X(IQ2_S)                     \
  X(IQ3_XXS)                   \
  X(IQ3_S)                     \
  X(IQ4_NL)                    \
  X(IQ4_XS)                    \
  X(TQ1_0)                     \
  X(TQ2_0)                     \
  X(MXFP4)                     \
  X(NVFP4)

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

// Those of them that weights of a linear may have.
#define INGOT_FLOAT_TYPES(X) \
  X(F32, float)              \
  X(F16, Half)               \
  X(BF16, Bfloat16)
