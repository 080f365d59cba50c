// The encoders: float weights to blocks, for every type that can be written.
//
// An encoder takes whole blocks and depends on nothing but their weights: the bytes are
// the same on every instruction set and however the blocks are split over threads. The
// files beside this one hold them, a family each:
//
//     encode_plain.h    F32 F16 BF16                     conversion
//     encode_rounded.h  Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q8_K    scale from the extreme weight
//     encode_ternary.h  TQ1_0 TQ2_0                      likewise
//     encode_fp4.h      MXFP4 NVFP4                      power of two; search
//     encode_k_affine.h Q2_K Q4_K Q5_K                   search for scale and minimum
//     encode_k_scale.h  Q3_K Q6_K                        search for a scale
//     encode_iq4.h      IQ4_NL IQ4_XS                    likewise, on uneven levels
//
// The searches minimise the plain squared error of each block. Finite weights never decode
// to infinity or NaN after a search: a scale too large for its type saturates.
#pragma once

#include "kernels/encode_fp4.h"
#include "kernels/encode_iq4.h"
#include "kernels/encode_k_affine.h"
#include "kernels/encode_k_scale.h"
#include "kernels/encode_plain.h"
#include "kernels/encode_rounded.h"
#include "kernels/encode_ternary.h"

#define INGOT_ENCODERS(X)  \
  X(F32, encode_f32)       \
  X(F16, encode_f16)       \
  X(BF16, encode_bf16)     \
  X(Q4_0, encode_q4_0)     \
  X(Q4_1, encode_q4_1)     \
  X(Q5_0, encode_q5_0)     \
  X(Q5_1, encode_q5_1)     \
  X(Q8_0, encode_q8_0)     \
  X(Q2_K, encode_q2_k)     \
  X(Q3_K, encode_q3_k)     \
  X(Q4_K, encode_q4_k)     \
  X(Q5_K, encode_q5_k)     \
  X(Q6_K, encode_q6_k)     \
  X(Q8_K, encode_q8_k)     \
  X(IQ4_NL, encode_iq4_nl) \
  X(IQ4_XS, encode_iq4_xs) \
  X(TQ1_0, encode_tq1_0)   \
  X(TQ2_0, encode_tq2_0)   \
  X(MXFP4, encode_mxfp4)   \
  X(NVFP4, encode_nvfp4)
