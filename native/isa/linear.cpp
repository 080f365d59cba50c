// The matrix products of one instruction set (see isa/kernels.cpp), in a separate file
// because they take the longest to compile.
#include "formats/all.h"
#include "isa/families.h"
#include "kernels/linear_float.h"
#include "kernels/linear_generate.h"
#include "kernels/linear_peak.h"
#if defined(__AMX_BF16__)
#include "kernels/byte_tiles.h"
#include "kernels/linear_tiles.h"
#else
#include "kernels/linear_words.h"
#endif
// AVX2 has no instruction that adds products of bytes without saturating. On ARM plain C++ is all
// there is so far.
#if defined(__aarch64__) || (defined(__AVX2__) && !defined(__AVX512VNNI__))
#define INGOT_BYTE_PRODUCTS 0
#else
#define INGOT_BYTE_PRODUCTS 1
#include "kernels/linear_bytes.h"
#endif

namespace ingot::INGOT_ISA {

#if INGOT_BYTE_PRODUCTS
// Blocks of 256 weights: llama.cpp rounds the inputs of smaller ones as finely as bytes would.
template <class F>
static void add_bytes(KernelTable& table) noexcept {
  if constexpr (F::kWeights == kInputBlock) {
    constexpr auto type = static_cast<uint32_t>(F::kType);
#if defined(__AMX_INT8__)
    constexpr auto many = tile_bytes<F>;
    constexpr int kStripColumns = 4;
#else
    constexpr auto many = prompt_linear<BytePanel<F>>;
    [[maybe_unused]] constexpr int kStripColumns = 8;
#endif
    table.prompt[type] = many;
    table.prompt_kind[type] = InputKind::kBytes;
#if defined(__AVX512F__)
    if constexpr (kTurns<F>) {
      table.generate[type] = generate_bytes<F, kStripColumns, many>;
      table.generate_kind[type] = InputKind::kBytes;
    }
#endif
  }
}
#endif

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
#if INGOT_BYTE_PRODUCTS
  if (precision == Precision::FAST) {
#define INGOT_ENTRY(Format) add_bytes<Format>(table);
    INGOT_BLOCK_FORMATS(INGOT_ENTRY)
#undef INGOT_ENTRY
    table.quantize_bytes = quantize_byte_column;
    table.quantized_bytes = both_quantized_bytes;
    table.prompt_rows = kPanelRows;
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
