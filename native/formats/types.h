// The tensor types a file may hold, by number: the name of each and the size of its blocks.
//
// The facts are those of the formats' headers and of plain.h; types.cpp collects them. Everything
// that sizes a tensor reads this table, in C++ and (through the bindings) in Python.
#pragma once

#include <cstdint>
#include <span>

namespace ingot {

// Types that are not made of blocks, and those that a KV cache can have. A number without a name
// here is the type of the format whose header says so.
enum class TensorType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q8_0 = 8,
  I8 = 24,
  I16 = 25,
  I32 = 26,
  I64 = 27,
  F64 = 28,
  BF16 = 30,
};

struct TypeTraits {
  const char* name;
  uint32_t id;
  uint32_t block_weights;
  uint32_t block_bytes;
};

inline constexpr uint32_t kMaxTypes = 64;  // numbers are below

// Every type, by rising number.
extern const std::span<const TypeTraits> kTypeTraits;

// The traits of a type number read from a file, or nullptr if there is none.
const TypeTraits* find_type(uint32_t id);

}  // namespace ingot
