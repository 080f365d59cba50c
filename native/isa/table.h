// What one build of the kernels offers: a table of function pointers, filled by
// isa/kernels.cpp once per instruction set and chosen by isa/dispatch.cpp.
#pragma once

#include <cstdint>

#include "formats/types.h"
#include "kernels/tasks.h"
#include "sampling/row_block.h"

namespace ingot {

// The inputs of one matrix product: `columns` tokens of `width` floats.
struct LinearInput {
  const float* values;  // [columns][value_stride]; read by weights that are floats
  int64_t value_stride;
  // Written by the phase's quantize_*, read by all other weights; aligned to 64 bytes.
  const uint8_t* quantized;
  const uint8_t* bytes;
  int64_t quantized_stride;  // from stretch to stretch, in both
  int64_t columns;
  int64_t width;  // a multiple of the weight's block
};

// What a kernel reads of a LinearInput: the floats as they are, or what a quantizer made of them.
// On AMX, "words" are the BF16 floats of tiles.
enum class InputKind : uint8_t { kFloats, kWords, kBytes };

struct KernelTable {
  // Indexed by type number; nullptr if a type has no such kernel.
  static constexpr uint32_t kTypes = kMaxTypes;
  using Decode = void (*)(const uint8_t* blocks, float* out, int64_t count);
  using Encode = void (*)(const float* values, uint8_t* blocks, int64_t count);
  // Rows [begin, end) of a weight matrix times every column:
  //   out[c * out_stride + r] = sum over k of weight[r][k] * x[c][k]
  // `scratch` holds scratch_bytes(width), 64-byte aligned, one for each thread.
  using Linear = void (*)(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                          int64_t begin, int64_t end, float* out, int64_t out_stride,
                          uint8_t* scratch);
  // Puts column `index` among the quantized ones. Room for a number of columns that is rounded
  // up to kColumnGroup; `stride` is theirs, see quantized_stride().
  using Quantize = void (*)(const float* column, int64_t width, uint8_t* quantized, int64_t stride,
                            int64_t index);
  static constexpr int64_t kColumnGroup = 16;

  const char* name;
  Decode decode[kTypes];
  Encode encode[kTypes];

  // One row of activations (kernels/rowwise.h).
  using Norm = void (*)(const float* x, const float* weight, const float* bias, int64_t n,
                        float epsilon, float* out);
  Norm rms_norm;
  Norm layer_norm;
  void (*rotate_head)(float* head, int64_t pairs, bool interleaved, const float* cos,
                      const float* sin);
  void (*activate)(Activation kind, const float* gate, const float* up, int64_t n, float* out);
  void (*softcap)(const float* x, int64_t n, float cap, float* out);
  void (*mix_rows)(const float* const* rows, const float* weights, int64_t count,
                   const float* residual, int64_t n, float* out);
  void (*exponentials)(const float* x, int64_t n, float* out);
  void (*xielu)(const float* x, int64_t n, float rise, float fall, float slope, float* out);

  // Attention over the paged cache (kernels/attention.h).
  void (*attend)(const AttendTask& task);
  void (*attend_expanded)(const ExpandedTask& task);  // kernels/expand.h
  void (*score_positions)(const ScoreTask& task);     // kernels/score.h
  void (*join_parts)(const AttendRow* parts, const float* mixes, int64_t count, int64_t part_stride,
                     int64_t mix_stride, int64_t size, const float* sink, float* out);

  // Linear maps of single heads (kernels/heads.h).
  void (*map_head)(const HeadTask& task);
  void (*add_head_rows)(const HeadTask& task);

  // Recurrent operations (kernels/recurrent.h).
  void (*causal_conv)(const ConvTask& task);
  void (*state_scan)(const ScanTask& task);
  void (*delta_rule)(const DeltaTask& task);  // kernels/delta.h

  // Linears (kernels/linear_*.h).
  Linear generate[kTypes];  // a few columns: straight from the packed weights
  Linear prompt[kTypes];    // many columns: panels of weights unpacked into scratch
  // A copy of a matrix with its rows interleaved, which is read faster and gives the same bits.
  struct Interleaved {
    int64_t rows;                         // of a strip: a matrix has a multiple of them; 0: none
    int64_t (*row_bytes)(int64_t width);  // of the copy
    void (*write)(const uint8_t* weight, int64_t row_bytes, int64_t rows, int64_t width,
                  uint8_t* copy);
    // Rows from `begin` on, a multiple of `rows`. `prompt` may be null: it reads the matrix.
    Linear generate, prompt;
  };
  Interleaved interleaved[kTypes];
  // What they read.
  InputKind generate_kind[kTypes];
  InputKind prompt_kind[kTypes];
  Quantize quantize_generate;                 // words
  Quantize quantize_prompt;                   // words
  Quantize quantize_bytes;                    // null if no kernel reads bytes
  int64_t (*quantized_bytes)(int64_t width);  // of one column, all kinds; a multiple of 64
  // Inputs are stored stretch by stretch (256 values), in each stretch column by column, so that
  // what a tile reads is contiguous: the words of all columns, then the bytes of all.
  int64_t quantized_stride(int64_t columns) const {
    return columns * quantized_bytes(1) / (quantize_bytes ? 2 : 1);
  }
  // Where the bytes begin in a room for so many columns.
  int64_t bytes_begin(int64_t columns, int64_t width) const {
    return quantize_bytes ? columns * quantized_bytes(width) / 2 : 0;
  }
  // Where the words of column `index`, the first of a group, begin in a prompt. Other inputs begin
  // at quantized_stride(index).
  int64_t (*prompt_offset)(int64_t width, int64_t index);
  int64_t (*scratch_bytes)(int64_t width);
  static constexpr int kPeakWords = 12 * 32;
  int64_t (*multiply_in_registers)(const int16_t* words, int64_t rounds, int32_t* sum);
  int64_t prompt_rows;  // rows of a work item that suit the prompt kernels
  RowKernels row;       // passes over a row of logits (sampling/row.h)
  // The second product of an adapter, by the type of its matrix (kernels/low_rank.h).
  void (*add_up[kTypes])(const LowRankTask& task);
};

// The kinds of inputs that the weights of one operation read, and how they get them.
class InputQuantizer {
 public:
  void add(const KernelTable& kernels, TensorType type) {
    generate_.add(kernels.generate_kind[static_cast<uint32_t>(type)]);
    prompt_.add(kernels.prompt_kind[static_cast<uint32_t>(type)]);
  }
  bool reads_floats() const { return generate_.floats || prompt_.floats; }

  // Puts column `index` into a room for so many columns.
  void quantize(const KernelTable& kernels, bool prompt, const float* column, int64_t width,
                uint8_t* quantized, int64_t columns, int64_t index) const {
    const Kinds& kinds = prompt ? prompt_ : generate_;
    const int64_t stride = kernels.quantized_stride(columns);
    if (kinds.words) {
      const auto quantize_words = prompt ? kernels.quantize_prompt : kernels.quantize_generate;
      quantize_words(column, width, quantized, stride, index);
    }
    if (kinds.bytes)
      kernels.quantize_bytes(column, width, quantized + kernels.bytes_begin(columns, width), stride,
                             index);
  }

 private:
  struct Kinds {
    bool floats = false, words = false, bytes = false;
    void add(InputKind kind) {
      floats |= kind == InputKind::kFloats;
      words |= kind == InputKind::kWords;
      bytes |= kind == InputKind::kBytes;
    }
  };
  Kinds generate_, prompt_;
};

}  // namespace ingot
