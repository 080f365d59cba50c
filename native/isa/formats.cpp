// Decoding and encoding for one instruction set (see isa/kernels.cpp).
#include "formats/all.h"
#include "isa/families.h"
#include "kernels/decode.h"
#include "kernels/encode.h"

namespace ingot::INGOT_ISA {

template <class F>
static void add_format(KernelTable& table) noexcept {
  constexpr auto type = static_cast<uint32_t>(F::kType);
  table.decode[type] = decode_blocks<F>;
  if constexpr (requires { F::encode; }) table.encode[type] = F::encode;
}

void add_formats(KernelTable& table) noexcept {
#define INGOT_ENTRY(Format) add_format<Format>(table);
  INGOT_BLOCK_FORMATS(INGOT_ENTRY)
#undef INGOT_ENTRY
#define INGOT_ENTRY(Name, Value) \
  table.decode[static_cast<uint32_t>(TensorType::Name)] = decode_plain<Value>;
  INGOT_PLAIN_TYPES(INGOT_ENTRY)
#undef INGOT_ENTRY
#define INGOT_ENTRY(Name, Value) \
  table.encode[static_cast<uint32_t>(TensorType::Name)] = encode_plain<Value>;
  INGOT_FLOAT_TYPES(INGOT_ENTRY)
#undef INGOT_ENTRY
}

}  // namespace ingot::INGOT_ISA
