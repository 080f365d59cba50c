// The encoders: float weights to blocks, for every format that can be written.
//
// An encoder is the member encode() of a format. It takes whole blocks and depends on nothing but
// their weights: the bytes are the same on every instruction set and however the blocks are split
// over threads. The files beside this one define them, a family each:
//
//     encode_rounded.h  Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q8_K    scale from the extreme weight
//     encode_ternary.h  TQ1_0 TQ2_0                      likewise
//     encode_fp4.h      MXFP4 NVFP4                      power of two; search
//     encode_k_affine.h Q2_K Q4_K Q5_K                   search for scale and minimum
//     encode_k_scale.h  Q3_K Q6_K                        search for a scale
//     encode_iq4.h      IQ4_NL IQ4_XS                    likewise, on uneven levels
//     encode_few_bits.h Q1_0 Q2_0                        mean; search for a scale
//
// The searches minimise the squared error of each block; quantize/weighted.cpp lets weights count
// differently, and has the encoders of IQ1, IQ2 and IQ3, which are compiled once. Finite weights
// never decode to infinity or NaN after a search: a scale too large for its type saturates.
#pragma once

#include "kernels/encode_few_bits.h"
#include "kernels/encode_fp4.h"
#include "kernels/encode_iq4.h"
#include "kernels/encode_k_affine.h"
#include "kernels/encode_k_scale.h"
#include "kernels/encode_rounded.h"
#include "kernels/encode_ternary.h"
