// Compiled once per instruction set (CMakeLists.txt sets INGOT_ISA and the
// compiler's flags): the same headers, each time in a namespace of its own, so
// that no function built for one instruction set can stand in for another's.
#include "isa/table.h"
#include "kernels/decode.h"
#include "kernels/encode.h"
#include "sampling/row.h"

#define INGOT_STRING_OF(x) #x
#define INGOT_STRING(x) INGOT_STRING_OF(x)

namespace ingot::INGOT_ISA {

static constexpr KernelTable make_table() {
  KernelTable table{};
  table.name = INGOT_STRING(INGOT_ISA);
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
  table.row = {row_maxima, row_exponentials, row_moments, exp_values, log_values};
  return table;
}

const KernelTable& kernels() {
  static constexpr KernelTable table = make_table();
  return table;
}

}  // namespace ingot::INGOT_ISA
