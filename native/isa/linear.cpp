// The matrix products of one instruction set (see isa/kernels.cpp), in a separate file
// because they take the longest to compile.
#include "formats/all.h"
#include "isa/families.h"
#include "kernels/linear_float.h"
#include "kernels/linear_generate.h"
#include "kernels/linear_peak.h"
#if defined(__AMX_BF16__)
#include "kernels/linear_tiles.h"
#else
#include "kernels/linear_prompt.h"
#endif

namespace ingot::INGOT_ISA {

void add_linear(KernelTable& table) noexcept {
#define INGOT_ENTRY(Format) \
  table.generate[static_cast<uint32_t>(Format::kType)] = generate_linear<Format>;
  INGOT_BLOCK_FORMATS(INGOT_ENTRY)
#undef INGOT_ENTRY
  table.multiply_in_registers = multiply_in_registers;
  table.quantize_generate = quantize_column<kGenerateAmplitude>;
  table.quantized_bytes = quantized_bytes;  // enough for tiles, too
#if defined(__AMX_BF16__)
#define INGOT_ENTRY(Format) \
  table.prompt[static_cast<uint32_t>(Format::kType)] = tile_linear<Format>;
  INGOT_BLOCK_FORMATS(INGOT_ENTRY)
#undef INGOT_ENTRY
  table.quantize_prompt = arrange_column;
  table.prompt_offset = column_tile_offset;
  table.scratch_bytes = tile_scratch_bytes;
  table.prompt_rows = kTilePanelRows;
#else
#define INGOT_ENTRY(Format) \
  table.prompt[static_cast<uint32_t>(Format::kType)] = prompt_linear<Format>;
  INGOT_BLOCK_FORMATS(INGOT_ENTRY)
#undef INGOT_ENTRY
  table.quantize_prompt = quantize_column<kPromptAmplitude>;
  table.prompt_offset = input_block_offset;
  table.scratch_bytes = prompt_scratch_bytes;
  table.prompt_rows = kPanelRows;
#endif
#define INGOT_ENTRY(Name, Value)                                                   \
  table.generate[static_cast<uint32_t>(TensorType::Name)] = float_generate<Value>; \
  table.prompt[static_cast<uint32_t>(TensorType::Name)] = float_prompt<Value>;
  INGOT_FLOAT_TYPES(INGOT_ENTRY)
#undef INGOT_ENTRY
}

}  // namespace ingot::INGOT_ISA
