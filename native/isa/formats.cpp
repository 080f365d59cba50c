// Decoding and encoding for one instruction set (see isa/kernels.cpp).
#include "isa/families.h"
#include "kernels/decode.h"
#include "kernels/encode.h"

namespace ingot::INGOT_ISA {

void add_formats(KernelTable& table) noexcept {
#define INGOT_ENTRY(Format) \
  table.decode[static_cast<uint32_t>(TensorType::Format)] = decode_blocks<Format>;
  INGOT_BLOCK_FORMATS(INGOT_ENTRY)
#undef INGOT_ENTRY
#define INGOT_ENTRY(Name, Value) \
  table.decode[static_cast<uint32_t>(TensorType::Name)] = decode_plain<Value>;
  INGOT_PLAIN_TYPES(INGOT_ENTRY)
#undef INGOT_ENTRY
#define INGOT_ENTRY(Name, function) \
  table.encode[static_cast<uint32_t>(TensorType::Name)] = function;
  INGOT_ENCODERS(INGOT_ENTRY)
#undef INGOT_ENTRY
}

}  // namespace ingot::INGOT_ISA
