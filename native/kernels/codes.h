// Codes that Python hands over by name: one list each. The enums here and their bindings
// (bindings/codes.cpp) are made from the lists; `ingot.graph` has enums with the same names and
// members, and importing the CPU backend fails if they differ.
#pragma once

#include <cstdint>

#include "formats/types.h"

// Functions of one number; kernels/rowwise.h computes them.
#define INGOT_ACTIVATIONS(X) \
  X(SILU)                    \
  X(GELU)                    \
  X(GELU_TANH)               \
  X(RELU_SQUARED)            \
  X(CLAMPED_SWIGLU)          \
  X(TANH)                    \
  X(SOFTPLUS)                \
  X(SIGMOID)                 \
  X(RELU)                    \
  X(IDENTITY)

#define INGOT_NORM_KINDS(X) \
  X(RMS)                    \
  X(LAYER)

// Which elements of a head RoPE rotates together.
#define INGOT_ROPE_LAYOUTS(X) \
  X(INTERLEAVED)              \
  X(HALF_SPLIT)

// Which part of a sequence attention looks at; executor/attend_op.cpp.
#define INGOT_SEEN_PARTS(X) \
  X(ALL)                    \
  X(ENCODED)                \
  X(DECODED)

// How the scores of experts become weights; executor/route.h.
#define INGOT_GATINGS(X) \
  X(SOFTMAX)             \
  X(SIGMOID)             \
  X(CHOSEN_SOFTMAX)      \
  X(SPARSE_MIXER)

// How far the inputs of matrix products are rounded. EXACT: to 16 bits. FAST: to 8 bits in prompts,
// where that is faster and still more accurate than other engines.
#define INGOT_PRECISIONS(X) \
  X(EXACT)                  \
  X(FAST)

#define INGOT_CODES(LIST)              \
  LIST(Activation, INGOT_ACTIVATIONS)  \
  LIST(NormKind, INGOT_NORM_KINDS)     \
  LIST(RopeLayout, INGOT_ROPE_LAYOUTS) \
  LIST(SeenPart, INGOT_SEEN_PARTS)     \
  LIST(Gating, INGOT_GATINGS)          \
  LIST(Precision, INGOT_PRECISIONS)

// Tensor types that keys and values can be stored as.
#define INGOT_KV_TYPES(X) \
  X(F32)                  \
  X(F16)                  \
  X(BF16)                 \
  X(Q8_0)                 \
  X(Q4_0)

namespace ingot {

#define INGOT_MEMBER(member) member,
#define INGOT_ENUM(Name, MEMBERS) enum class Name : int { MEMBERS(INGOT_MEMBER) };
INGOT_CODES(INGOT_ENUM)
#undef INGOT_ENUM
#undef INGOT_MEMBER

enum class KvType : uint32_t {
#define INGOT_MEMBER(member) member = static_cast<uint32_t>(TensorType::member),
  INGOT_KV_TYPES(INGOT_MEMBER)
#undef INGOT_MEMBER
};

}  // namespace ingot
