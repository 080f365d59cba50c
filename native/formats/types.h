// The one list of tensor types: name, GGUF type number, weights per block, bytes
// per block. Everything that sizes a tensor reads it, in C++ and (through the
// bindings) in Python; every block header checks its own layout against it.
#pragma once

#include <cstdint>

#define INGOT_TENSOR_TYPES(X) \
  X(F32, 0, 1, 4)             \
  X(F16, 1, 1, 2)             \
  X(Q4_0, 2, 32, 18)          \
  X(Q4_1, 3, 32, 20)          \
  X(Q5_0, 6, 32, 22)          \
  X(Q5_1, 7, 32, 24)          \
  X(Q8_0, 8, 32, 34)          \
  X(Q2_K, 10, 256, 84)        \
  X(Q3_K, 11, 256, 110)       \
  X(Q4_K, 12, 256, 144)       \
  X(Q5_K, 13, 256, 176)       \
  X(Q6_K, 14, 256, 210)       \
  X(Q8_K, 15, 256, 292)       \
  X(IQ2_XXS, 16, 256, 66)     \
  X(IQ2_XS, 17, 256, 74)      \
  X(IQ3_XXS, 18, 256, 98)     \
  X(IQ1_S, 19, 256, 50)       \
  X(IQ4_NL, 20, 32, 18)       \
  X(IQ3_S, 21, 256, 110)      \
  X(IQ2_S, 22, 256, 82)       \
  X(IQ4_XS, 23, 256, 136)     \
  X(I8, 24, 1, 1)             \
  X(I16, 25, 1, 2)            \
  X(I32, 26, 1, 4)            \
  X(I64, 27, 1, 8)            \
  X(F64, 28, 1, 8)            \
  X(IQ1_M, 29, 256, 56)       \
  X(BF16, 30, 1, 2)           \
  X(TQ1_0, 34, 256, 54)       \
  X(TQ2_0, 35, 256, 66)       \
  X(MXFP4, 39, 32, 17)        \
  X(NVFP4, 40, 64, 36)

namespace ingot {

enum class TensorType : uint32_t {
#define INGOT_ENTRY(name, id, weights, bytes) name = id,
  INGOT_TENSOR_TYPES(INGOT_ENTRY)
#undef INGOT_ENTRY
};

struct TypeTraits {
  const char* name;
  uint32_t id;
  uint32_t block_weights;
  uint32_t block_bytes;
};

inline constexpr TypeTraits kTypeTraits[] = {
#define INGOT_ENTRY(name, id, weights, bytes) {#name, id, weights, bytes},
    INGOT_TENSOR_TYPES(INGOT_ENTRY)
#undef INGOT_ENTRY
};

// The traits of a type number read from a file, or nullptr if there is none.
constexpr const TypeTraits* find_type(uint32_t id) {
  for (const TypeTraits& traits : kTypeTraits) {
    if (traits.id == id) return &traits;
  }
  return nullptr;
}

}  // namespace ingot
