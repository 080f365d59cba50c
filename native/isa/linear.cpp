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
#include "kernels/linear_words.h"
#endif
#include "kernels/linear_bytes.h"

namespace ingot::INGOT_ISA {

// Blocks of 256 weights: llama.cpp rounds the inputs of smaller ones as finely as bytes would.
template <class F>
static void add_bytes(KernelTable& table) noexcept {
  if constexpr (kMultipliesBytes<F>) {
    constexpr auto type = static_cast<uint32_t>(F::kType);
#if !defined(__AMX_BF16__)  // tiles of BF16 are faster
    table.prompt[type] = prompt_linear<BytePanel<F>>;
    table.prompt_kind[type] = InputKind::kBytes;
#endif
#if defined(__AVX2__)
    if constexpr (kTurns<F>) {
      table.generate[type] = generate_bytes<F>;
      table.generate_kind[type] = InputKind::kBytes;
    }
#endif
  }
}

void add_linear(KernelTable& table, [[maybe_unused]] Precision precision) noexcept {
  for (InputKind& kind : table.generate_kind) kind = InputKind::kWords;
  for (InputKind& kind : table.prompt_kind) kind = InputKind::kWords;
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
  table.prompt[static_cast<uint32_t>(Format::kType)] = prompt_linear<WordPanel<Format>>;
  INGOT_BLOCK_FORMATS(INGOT_ENTRY)
#undef INGOT_ENTRY
  table.quantize_prompt = quantize_column<kPromptAmplitude>;
  table.prompt_offset = input_block_offset;
  table.scratch_bytes = prompt_scratch_bytes<WordStrip>;  // a ByteStrip is smaller
  table.prompt_rows = kPanelRows;
#endif
#if !defined(__aarch64__)
  if (precision == Precision::FAST) {
#define INGOT_ENTRY(Format) add_bytes<Format>(table);
    INGOT_BLOCK_FORMATS(INGOT_ENTRY)
#undef INGOT_ENTRY
    table.quantize_bytes = quantize_byte_column;
    table.quantized_bytes = both_quantized_bytes;
  }
#endif
#define INGOT_ENTRY(Name, Value)                                                     \
  table.generate[static_cast<uint32_t>(TensorType::Name)] = float_generate<Value>;   \
  table.prompt[static_cast<uint32_t>(TensorType::Name)] = float_prompt<Value>;       \
  table.generate_kind[static_cast<uint32_t>(TensorType::Name)] = InputKind::kFloats; \
  table.prompt_kind[static_cast<uint32_t>(TensorType::Name)] = InputKind::kFloats;
  INGOT_FLOAT_TYPES(INGOT_ENTRY)
#undef INGOT_ENTRY
}

}  // namespace ingot::INGOT_ISA
