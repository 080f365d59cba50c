// Compiled once per instruction set (CMakeLists.txt sets INGOT_ISA and the
// compiler's flags): the same headers, each time in a namespace of its own, so
// that no function built for one instruction set can stand in for another's.
#include "isa/table.h"
#include "kernels/attention.h"
#include "kernels/decode.h"
#include "kernels/rowwise.h"
#include "kernels/encode.h"
#include "kernels/linear_float.h"
#include "kernels/linear_generate.h"
#include "kernels/linear_prompt.h"

#define INGOT_STRING_OF(x) #x
#define INGOT_STRING(x) INGOT_STRING_OF(x)

namespace ingot::INGOT_ISA {

static constexpr KernelTable make_table() {
  KernelTable table{};
  table.name = INGOT_STRING(INGOT_ISA);
#define INGOT_ENTRY(Format)                                                            \
  table.decode[static_cast<uint32_t>(TensorType::Format)] = decode_blocks<Format>;     \
  table.generate[static_cast<uint32_t>(TensorType::Format)] = generate_linear<Format>; \
  table.prompt[static_cast<uint32_t>(TensorType::Format)] = prompt_linear<Format>;
  INGOT_BLOCK_FORMATS(INGOT_ENTRY)
#undef INGOT_ENTRY
#define INGOT_ENTRY(Name, Value) \
  table.decode[static_cast<uint32_t>(TensorType::Name)] = decode_plain<Value>;
  INGOT_PLAIN_TYPES(INGOT_ENTRY)
#undef INGOT_ENTRY
  table.rms_norm = rms_norm;
  table.layer_norm = layer_norm;
  table.turn_head = turn_head;
  table.activate = activate;
  table.softcap = softcap;
  table.attend = attend;
  table.join_parts = join_parts;
#define INGOT_ENTRY(Name, function) \
  table.encode[static_cast<uint32_t>(TensorType::Name)] = function;
  INGOT_ENCODERS(INGOT_ENTRY)
#undef INGOT_ENTRY
#define INGOT_ENTRY(Name, Value)                                                   \
  table.generate[static_cast<uint32_t>(TensorType::Name)] = float_generate<Value>; \
  table.prompt[static_cast<uint32_t>(TensorType::Name)] = float_prompt<Value>;
  INGOT_FLOAT_TYPES(INGOT_ENTRY)
#undef INGOT_ENTRY
  table.quantize_generate = quantize_column<kGenerateAmplitude>;
  table.quantize_prompt = quantize_column<kPromptAmplitude>;
  table.quantized_bytes = quantized_bytes;
  table.scratch_bytes = prompt_scratch_bytes;
  table.prompt_rows = kPanelRows;
  return table;
}

const KernelTable& kernels() {
  static constexpr KernelTable table = make_table();
  return table;
}

}  // namespace ingot::INGOT_ISA
