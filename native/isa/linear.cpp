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
#include "kernels/linear_strips.h"

namespace ingot::INGOT_ISA {

template <class F>
static void add_bytes(KernelTable& table) noexcept {
  if constexpr (kMultipliesBytes<F>) {
    constexpr auto type = static_cast<uint32_t>(F::kType);
#if !defined(__AMX_BF16__)  // tiles of BF16 are faster
    static_assert(sizeof(typename BytePanel<F>::Strip) <= sizeof(WordStrip), "scratch_bytes");
    table.prompt[type] = prompt_linear<BytePanel<F>>;
    table.prompt_kind[type] = InputKind::kBytes;
#endif
#if defined(INGOT_TURNS)
    if constexpr (kTurns<F>) {
      table.generate[type] = generate_bytes<RowsOfFile<F>>;
      table.generate_kind[type] = InputKind::kBytes;
      table.interleaved[type] = {
          .rows = simd::kLanes,
          .row_bytes = interleaved_row_bytes<F>,
          .write = interleave_rows<F>,
          .generate = generate_bytes<InterleavedRows<F>>,
          .prompt = table.prompt_kind[type] == InputKind::kBytes
                        ? prompt_linear<InterleavedPanel<F>>
                        : nullptr,
      };
    }
#endif
  }
}

void add_linear(KernelTable& table, Precision precision) noexcept {
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
  table.scratch_bytes = prompt_scratch_bytes<WordStrip>;
  table.prompt_rows = kPanelRows;
#endif
  if (precision == Precision::FAST) {
#define INGOT_ENTRY(Format) add_bytes<Format>(table);
    INGOT_BLOCK_FORMATS(INGOT_ENTRY)
#undef INGOT_ENTRY
    table.quantize_bytes = quantize_byte_column;
    table.quantized_bytes = both_quantized_bytes;
  }
#define INGOT_ENTRY(Name, Value)                                                     \
  table.generate[static_cast<uint32_t>(TensorType::Name)] = float_generate<Value>;   \
  table.prompt[static_cast<uint32_t>(TensorType::Name)] = float_prompt<Value>;       \
  table.generate_kind[static_cast<uint32_t>(TensorType::Name)] = InputKind::kFloats; \
  table.prompt_kind[static_cast<uint32_t>(TensorType::Name)] = InputKind::kFloats;
  INGOT_FLOAT_TYPES(INGOT_ENTRY)
#undef INGOT_ENTRY
}

}  // namespace ingot::INGOT_ISA
